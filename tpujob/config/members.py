"""A file of members: a login or an e-mail address in each line, with its role."""

from pathlib import Path

from tpujob.config import files
from tpujob.domain import members
from tpujob.domain.access import Role
from tpujob.domain.spec import yaml
from tpujob.errors import BadRequest, BadSpec


def read(path: Path) -> dict[str, Role]:
    """The role of each name. Raises BadSpec that says everything that is wrong, each with its line."""
    document = yaml.load(files.read(path), str(path))
    found: dict[str, Role] = {}
    wrong: list[str] = []
    for given, role in document.data.items():
        try:
            found[members.name_of(given)] = members.role_of(str(role))
        except BadRequest as error:
            line = document.line((given,))
            wrong.append(f"{path}:{line}: {error.message}. {error.hint}")
    if wrong:
        raise BadSpec("\n".join(wrong))
    return found
