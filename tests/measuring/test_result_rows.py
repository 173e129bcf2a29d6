"""One table of all results, made from the pages that explain them."""

from __future__ import annotations

from pathlib import Path

from measuring.result_rows import result_rows, results_csv
from tests.pages import ROOT

PAGE = """# Page

## One study

```console
$ stepvad benchmark compare walkers results \\
    --seeds 5
```

Split 1:

| method | AUROC | over seeds | 95 % over clips | lead of the first | AP | EER |
| --- | --: | --: | --: | --: | --: | --: |
| STEP | 89.6 | ± 0.1 | 87.7 to 91.3 | - | 78.6 | 17.8 |
| kNN | 88.4 | - | 86.0 to 90.4 | -1.3 (-1.8 to +0.7) | 75.3 | 19.2 |

| what | seconds |
|---|--:|
| a fit | 3 |
"""


def test_rows_keep_their_interval_their_command_and_their_sign(tmp_path: Path) -> None:
    page = tmp_path / "one.md"
    page.write_text(PAGE, encoding="utf-8")
    first, second = result_rows(page)
    assert (first["page"], first["section"], first["table"]) == ("one", "One study", "Split 1")
    assert (first["AUROC"], first["deviation over seeds"]) == ("89.6", "0.1")
    assert (first["difference"], second["deviation over seeds"]) == ("", "")
    assert (second["95 % low"], second["95 % high"]) == ("86.0", "90.4")
    assert second["kind of difference"] == "lead of the first"
    assert [second[name] for name in ("difference", "low", "high")] == ["-1.3", "-1.8", "+0.7"]
    assert second["commands"] == "stepvad benchmark compare walkers results --seeds 5"


def test_rows_of_one_method_at_several_lengths_differ(tmp_path: Path) -> None:
    page = tmp_path / "one.md"
    header = "| data | method | T | AUROC | over seeds |\n|---|---|--:|--:|--:|\n"
    page.write_text(
        header + "| walkers | STEP | 1 | 92.3 | - |\n| walkers | STEP | 24 | 94.5 | - |\n"
    )
    assert [one["case"] for one in result_rows(page)] == ["STEP, T = 1", "STEP, T = 24"]


def test_the_table_to_download_is_that_of_the_pages() -> None:
    pages = sorted((ROOT / "docs" / "benchmarks").glob("*.md"))
    made = results_csv(pages)
    assert made.count("\n") > 200
    assert made == (ROOT / "docs" / "data" / "results.csv").read_text(encoding="utf-8"), (
        "run scripts/collect-results"
    )
