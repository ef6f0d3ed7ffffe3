"""A file of members: a login or an e-mail address in each line, with its role."""

from pathlib import Path

from tpujob.config import files
from tpujob.domain import members
from tpujob.domain.access import Role
from tpujob.domain.spec import yaml
from tpujob.errors import BadRequest, BadSpec


def read(path: Path) -> dict[str, Role]:
    """Return the role of each name. Raise BadSpec that lists every mistake with its line."""
    document = yaml.load(files.read(path), str(path))
    roles: dict[str, Role] = {}
    wrong: list[str] = []
    for name, role in document.data.items():
        line = document.line((name,))
        try:
            member, given = members.name_of(str(name)), members.role_of(str(role))
        except BadRequest as error:
            wrong.append(f"{path}:{line}: {error.message}. {error.hint}")
            continue
        if member in roles:
            wrong.append(f"{path}:{line}: {member} is named twice.")
        roles[member] = given
    if wrong:
        raise BadSpec("\n".join(wrong))
    return roles
