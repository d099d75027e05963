"""gradus, installed as a wheel: the program, its C++ library, headers and CMake files.

The program uses the torch that is installed beside this package.
"""
import pathlib

PREFIX = pathlib.Path(__file__).resolve().parent
"""The folder with bin, include and lib, for CMAKE_PREFIX_PATH."""
