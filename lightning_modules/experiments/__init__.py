"""Experiments: a YAML file becomes trials, each a trained model, and these become tables.

    YAML -> plan.Experiment -> plan.Trial (many) -> runner -> trial.run_trial -> store
                                                                                   |
                               table or study, CSV and figures  <--------+

A trial is keyed by everything its result depends on, so tables share trials, and an interrupted
command goes on where it was.
"""
