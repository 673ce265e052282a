"""learn2learn is imported, or the error says how to get it."""

import sys

import pytest

from lightning_modules import INSTALL_LEARN2LEARN, require_learn2learn


def forget_learn2learn(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.split(".")[0] == "learn2learn":
            monkeypatch.delitem(sys.modules, name)


def test_gives_the_module_where_learn2learn_is_installed() -> None:
    learn2learn = pytest.importorskip("learn2learn", reason="learn2learn is optional")
    assert require_learn2learn() is learn2learn
    assert hasattr(require_learn2learn().data, "MetaDataset")


def test_a_missing_learn2learn_is_an_import_error_with_the_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forget_learn2learn(monkeypatch)
    monkeypatch.setitem(sys.modules, "learn2learn", None)
    with pytest.raises(ImportError) as caught:
        require_learn2learn()
    assert INSTALL_LEARN2LEARN in str(caught.value)
    assert caught.value.name == "learn2learn"


def test_a_missing_requirement_of_learn2learn_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("learn2learn", reason="learn2learn is optional")
    forget_learn2learn(monkeypatch)
    monkeypatch.setitem(sys.modules, "gym", None)
    with pytest.raises(ImportError, match=r"importing it failed \(import of gym"):
        require_learn2learn()
