"""Every public function says what it takes, what it returns and which errors it raises."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re

import pytest

import sparsek


def public_modules():
    """Those that name what is public; one whose package is not installed is left out."""
    names = [module.name for module in pkgutil.walk_packages(sparsek.__path__, "sparsek.", onerror=lambda name: None)]
    for name in ["sparsek", *names]:
        if any(part.startswith("_") for part in name.split(".")):
            continue
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        if hasattr(module, "__all__"):
            yield module


def public_functions():
    found = {}
    for module in public_modules():
        for name in module.__all__:
            item = getattr(module, name)
            if inspect.isfunction(item):
                found[f"{module.__name__}.{name}"] = item
            elif inspect.isclass(item) and not issubclass(item, tuple):
                found[f"{module.__name__}.{name}"] = item
                for member, value in vars(item).items():
                    if member.startswith("_") and member not in ("__and__", "__or__"):
                        continue
                    function = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
                    if inspect.isfunction(function):
                        found[f"{module.__name__}.{name}.{member}"] = function
    return found


FUNCTIONS = public_functions()


def arguments(function):
    signature = inspect.signature(function)
    return [name for name in signature.parameters if name not in ("self", "cls", "args", "kwargs")]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_has_a_docstring_that_names_its_errors(name):
    function = FUNCTIONS[name]
    doc = inspect.getdoc(function)
    assert doc, f"{name}: no docstring"
    # A class that only classmethods make says so itself; a function without arguments has nothing to refuse.
    if inspect.isclass(function) or not arguments(function):
        return
    raises = re.search(r"^Raises:\n((?: +.*\n?)+)", doc, re.MULTILINE)
    assert raises, f"{name}: its docstring has no section 'Raises:'"
    assert re.search(r"\b\w+Error\b", raises.group(1)), f"{name}: 'Raises:' names no error"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_documents_no_argument_that_it_does_not_have(name):
    function = FUNCTIONS[name]
    section = re.search(r"^Args:\n((?: +.*\n?|\n)+?)(?=\n\S|\Z)", inspect.getdoc(function) or "", re.MULTILINE)
    if section is None:
        return
    documented = re.findall(r"^ {4}(\w+):", section.group(1), re.MULTILINE)
    assert documented
    unknown = set(documented) - set(arguments(function))
    assert not unknown, f"{name}: documents {sorted(unknown)}, which it does not take"


def test_the_functions_that_matter_are_among_them():
    for name in ("sparsek.attention", "sparsek.bsr_gemm", "sparsek.prune", "sparsek.BlockMask.from_mask_mod"):
        assert name in FUNCTIONS


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("sparsek.jax.attention", "jax"),
        ("sparsek.torch.attention", "torch"),
        ("sparsek.torch.bsr_gemm", "torch"),
        ("sparsek.integrations.transformers.register", "transformers"),
    ],
)
def test_the_integrations_are_among_them(name, package):
    pytest.importorskip(package)
    assert name in FUNCTIONS
