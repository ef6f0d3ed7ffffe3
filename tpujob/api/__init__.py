"""What a user can ask of jobs (`JobsApi`), and the shapes of what goes in and comes out: every name of these modules.

Shapes and signatures only: no rule, no I/O, no import of another room. The rules are in `service/` and `domain/`.
"""

from tpujob.api.admin_shapes import *  # noqa: F403
from tpujob.api.backend_shapes import *  # noqa: F403
from tpujob.api.cost_shapes import *  # noqa: F403
from tpujob.api.data_shapes import *  # noqa: F403
from tpujob.api.forecast_shapes import *  # noqa: F403
from tpujob.api.job_shapes import *  # noqa: F403
from tpujob.api.jobs_api import JobsApi as JobsApi
from tpujob.api.list_shapes import *  # noqa: F403
from tpujob.api.log_shapes import *  # noqa: F403
from tpujob.api.notify_shapes import *  # noqa: F403
from tpujob.api.overview_shapes import *  # noqa: F403
from tpujob.api.shapes import *  # noqa: F403
