"""The results of a run, for people: paired statistics, figures, and one HTML page.

`save_stage` writes what a report needs of a selection, `read_run` reads a run's folder, `html_page`
makes the page and `save_figures` the figures for papers.
"""

from fsl_basesel.report.record import save_classes, save_pictures, save_stage

__all__ = ["save_classes", "save_pictures", "save_stage"]
