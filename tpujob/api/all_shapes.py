"""Every shape of these modules, in one place."""

from tpujob.api.backend_shapes import *  # noqa: F403
from tpujob.api.cost_shapes import *  # noqa: F403
from tpujob.api.file_shapes import *  # noqa: F403
from tpujob.api.job_shapes import *  # noqa: F403
from tpujob.api.list_shapes import *  # noqa: F403
from tpujob.api.log_shapes import *  # noqa: F403
from tpujob.api.queue_shapes import *  # noqa: F403
from tpujob.api.shapes import *  # noqa: F403
