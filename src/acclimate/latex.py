"""Words as LaTeX takes them."""

from __future__ import annotations

__all__ = ["latex_words"]

_SIGNS = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", "−": "$-$", "–": "--", "×": r"$\times$", "τ": r"$\tau$", "→": r"$\to$",
}  # fmt: skip


def latex_words(words: str) -> str:
    r"""Words with what means something else to LaTeX escaped.

    >>> print(latex_words("50 % ± 1, wrn_40"))
    50 \% $\pm$ 1, wrn\_40
    """
    return "".join(_SIGNS.get(letter, letter) for letter in words)
