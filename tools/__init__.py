"""Tools of the project's developers; none of them is part of the installed package."""
