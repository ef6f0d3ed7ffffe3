"""A report of costs as CSV, for a command and for the page. Pure."""

import csv
import io

from tpujob.api import CostView


def cost_csv(costs: CostView) -> str:
    """Return a line for each row and part, with amounts in micro-dollars; no line end after the last line."""
    divided = bool(costs["then"])
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    keys = [costs["by"], *([costs["then"]] if divided else [])]
    writer.writerow(
        [*keys, "name", "part", "chip_hours", "list_micros", "unpriced_chip_hours"],
    )
    for row in costs["rows"]:
        keys = [row["key"], *([row["then"]] if divided else [])]
        for part in row["parts"]:
            unknown = row["unpriced_chip_hours"] and not part["list_micros"]
            amount = "" if unknown else part["list_micros"]
            facts = [part["part"], part["chip_hours"], amount, row["unpriced_chip_hours"]]
            writer.writerow([*keys, row["name"], *facts])
    return out.getvalue().rstrip("\n")
