"""The results of a run, for people: paired statistics, figures, and one HTML page.

`save_classes` and `save_pictures` write what a report needs beside a selection, `read_run` reads a
run's folder, `html_page` makes the page and `save_figures` the figures for papers.
"""

from fsl_basesel.report.record import save_classes, save_pictures

__all__ = ["save_classes", "save_pictures"]
