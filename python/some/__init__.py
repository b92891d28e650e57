"""SoME from Python: open runs, generate, analyze, train.

    import some
    run = some.open("runs/tiny")
    run.generate("Once upon a time")["text"]
    run.logits(run.encode("Once upon"))     # NumPy
    some.train("tiny", "runs/mine", {"some": {"top_k": 4}}, on_step=print)

Errors are some.Error; those that the caller can correct are some.InputError (a ValueError). Both have the message of the
command line, and its code and values (docs/errors.md): error.code == "file-not-found", error.values == ["mine.txt", ...].
Long calls release the GIL, and Ctrl-C stops them: training finishes its step and saves first. Messages of the library go to
logging.getLogger("some").
"""

import os as _os

from ._some import Error, InputError, Run, _Lab, _recipe, _Trainer, export_hf, import_hf, open, runs, version

__all__ = ["Error", "InputError", "Lab", "Run", "Trainer", "export_hf", "find_recipe", "import_hf", "open", "recipe", "runs",
           "train", "version"]

__version__ = version.split()[1]

_RECIPES = _os.path.join(_os.path.dirname(_os.path.abspath(__file__)), "recipes")


def _input_error(code, message, *values):
    error = InputError(message)
    error.code, error.values = code, list(values)
    return error


def find_recipe(name):
    """Returns the file of a recipe given by path or name ("tiny"), searched here, in ./recipes and in the package."""
    name = _os.fspath(name)
    for path in (name, name + ".toml"):
        if _os.path.isfile(path):
            return path
    if _os.sep not in name:
        file = name if name.endswith(".toml") else name + ".toml"
        for folder in ("recipes", _RECIPES):
            if _os.path.isfile(_os.path.join(folder, file)):
                return _os.path.join(folder, file)
    raise _input_error("recipe-not-found", f"recipe {name} not found here, in ./recipes or in {_RECIPES}; pass the path of a TOML file", name)


def _base_and_settings(recipe, settings):
    """Splits a recipe (a name, a path, or a dict of tables) with settings (a dict of tables) that override it."""
    if isinstance(recipe, dict):
        merged = {name: dict(value) if isinstance(value, dict) else value for name, value in recipe.items()}
        for name, value in (settings or {}).items():
            if isinstance(value, dict) and isinstance(merged.get(name), dict):
                merged[name].update(value)
            else:
                merged[name] = value
        return "", merged
    return (find_recipe(recipe) if recipe is not None else ""), dict(settings or {})


def recipe(recipe="default", settings=None):
    """Returns a resolved recipe as a dict: every setting by table and name. Change it and pass it to train or Trainer."""
    base, tables = _base_and_settings(recipe, settings)
    return _recipe(tables, base)


class Trainer:
    """A run in training. It locks its folder until it is closed (also by `with`).

    run() executes the whole recipe. For a custom loop call step(), evaluate() and save(), or run_scheduled() after each step
    for everything that the recipe schedules then. In either case, a run that is stopped and resumed is bit-identical to an
    uninterrupted one.

    recipe: a name, a path or a dict of tables; settings: a dict of tables that override it. from_run: initialize from the
    weights and keys of another run (recipe None: with its settings too). on_step and on_evaluation are called with dicts; an
    exception in them stops the run, which saves first."""

    def __init__(self, recipe, out, settings=None, from_run=None, checkpoint="latest", on_step=None, on_evaluation=None):
        if recipe is None and from_run is None:
            raise _input_error("argument-missing", "no recipe; pass a recipe, or a run to start from (from_run)", "recipe")
        base, tables = _base_and_settings(recipe, settings)
        if isinstance(recipe, dict) and from_run is not None:
            raise _input_error("option-conflict", "from_run cannot be combined with a dict as recipe; pass changes as settings, and None or a name as recipe",
                               "from_run")
        self.folder = _os.fspath(out)
        source = None if from_run is None else _os.fspath(from_run)
        self._native = _Trainer(tables, base, self.folder, source, str(checkpoint), on_step, on_evaluation)

    @classmethod
    def resume(cls, folder, settings=None, from_step=None, on_step=None, on_evaluation=None):
        """Resumes from the last checkpoint (or from_step). settings, each such as "train.epochs=4", may extend the run."""
        trainer = cls.__new__(cls)
        trainer.folder = _os.fspath(folder)
        trainer._native = _Trainer(trainer.folder, list(settings or []), from_step, on_step, on_evaluation)
        return trainer

    finished = property(lambda self: self._native.finished, doc="True if the run is finished.")
    steps = property(lambda self: self._native.steps, doc="Number of completed steps.")
    total_steps = property(lambda self: self._native.total_steps, doc="Number of steps of the whole run.")
    loss = property(lambda self: self._native.loss, doc="Loss of the last step.")
    gradient_norm = property(lambda self: self._native.gradient_norm, doc="Gradient norm of the last step.")
    recipe = property(lambda self: self._native.recipe, doc="All settings, by table and name.")

    def step(self, count=1):
        """Trains `count` steps, or fewer at the end of the run; returns the loss of the last one."""
        return self._native.step(count)

    def run_scheduled(self):
        """Executes what the recipe schedules after the last step: an evaluation, the end of an epoch, a checkpoint."""
        self._native.run_scheduled()

    def evaluate(self):
        """Evaluates on the validation text and writes the result to metrics.jsonl."""
        return self._native.evaluate()

    def save(self):
        """Writes a checkpoint."""
        self._native.save()

    def run(self):
        """Trains to the end. Ctrl-C finishes the step, saves and raises KeyboardInterrupt; resume() continues from there."""
        return self._native.run()

    def keys(self, layer):
        """Returns the current keys of a layer as a NumPy array [experts, query size]."""
        return self._native.keys(layer)

    def close(self):
        """Releases the run folder. Unsaved progress is lost."""
        self._native.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def train(recipe, out, settings=None, from_run=None, on_step=None, on_evaluation=None):
    """Trains a run from start to end and returns {steps, finished, stopped_early, loss, ...}."""
    with Trainer(recipe, out, settings, from_run, on_step=on_step, on_evaluation=on_evaluation) as trainer:
        return trainer.run()


class Lab:
    """Series of runs, trained one after another during iteration; finished runs are skipped.

        for done in some.Lab(["series-a"], scale=0.02, builtin=True):
            print(done["name"], done.get("loss"))
    """

    def __init__(self, names, runs="lab", seeds=1, scale=1.0, builtin=False, max_steps=None, settings=None, on_step=None,
                 index=None):
        index = index or next((path for path in ("recipes/index.toml", _os.path.join(_RECIPES, "index.toml"))
                               if _os.path.isfile(path)), "recipes/index.toml")
        names = [names] if isinstance(names, str) else list(names)
        self._native = _Lab(_os.fspath(index), names, _os.fspath(runs), seeds, scale, builtin, max_steps, settings or {},
                            on_step)

    def __len__(self):
        return len(self._native)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._native)
