"""Whether a test of the program runs on a GPU: GRADUS_TEST_DEVICE=gpu, which `ctest -L gpu`
sets.
"""

import json
import os
import subprocess
import sys


def on_gpu(gradus):
    """Ends the test with ctest's code for a skipped one where a GPU is wanted and `gradus doctor`
    finds none.
    """
    if os.environ.get("GRADUS_TEST_DEVICE") != "gpu":
        return False
    found = json.loads(
        subprocess.run([gradus, "doctor", "--json"], capture_output=True, text=True, timeout=120,
                       check=True).stdout)
    if found["gpus"] == 0:
        print("no GPU here")
        sys.exit(77)
    return True
