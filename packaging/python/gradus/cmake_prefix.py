"""Prints where find_package(gradus) looks.

cmake -DCMAKE_PREFIX_PATH=$(python -m gradus.cmake_prefix)
"""
from gradus import PREFIX

if __name__ == "__main__":
    print(PREFIX)
