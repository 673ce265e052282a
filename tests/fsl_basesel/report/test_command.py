"""`fsl-basesel report`."""

from fsl_basesel.cli import main
from tests.fsl_basesel.report.folders import selected


def test_the_page_is_written_beside_the_run(tmp_path, capsys):
    assert main(["report", str(selected(tmp_path))]) == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "report.html" in capsys.readouterr().out


def test_page_and_figures_go_where_they_are_asked_to(tmp_path, capsys):
    folder = selected(tmp_path / "run")
    out, figures = tmp_path / "new" / "page.html", tmp_path / "figures"
    assert main(["report", str(folder), "--out", str(out), "--figures", str(figures)]) == 0
    assert out.exists()
    assert (figures / "class-map.svg").exists()
    assert not (folder / "report.html").exists()
    assert "10 files" in capsys.readouterr().out


def test_a_folder_without_selections_is_one_line_and_exit_code_2(tmp_path, capsys):
    for folder in (tmp_path, tmp_path / "absent"):
        assert main(["report", str(folder)]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.startswith("fsl-basesel: error: Expected")
        assert said.err.count("\n") == 1


def test_a_place_that_cannot_be_written_is_one_line_and_exit_code_2(tmp_path, capsys):
    folder = selected(tmp_path / "run")
    (tmp_path / "file").write_text("")
    for out in (tmp_path, tmp_path / "file" / "page.html"):
        assert main(["report", str(folder), "--out", str(out)]) == 2
        assert capsys.readouterr().err.count("\n") == 1
