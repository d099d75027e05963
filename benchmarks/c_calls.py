"""What a call of the C interface (gradus_c.h) costs beside the work that it asks for: handle, lock
and the batch's two tensors.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmark_row import Skip, at_most

HERE = Path(__file__).resolve().parent
CONFIG = dict(model_type="gpt2", vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=1)
LIMIT = 5.0


def main(build):
    if subprocess.run([sys.executable, "-c", "import transformers"],
                      capture_output=True).returncode != 0:
        raise Skip("the Python peer is absent: make peer")
    with tempfile.TemporaryDirectory() as folder:
        folder, library = Path(folder), build / "lib"
        make = ("import sys, transformers; transformers.AutoModelForCausalLM.from_config("
                f"transformers.AutoConfig.for_model(**{CONFIG!r})).save_pretrained(sys.argv[1])")
        subprocess.run([sys.executable, "-c", make, folder / "model"], check=True,
                       capture_output=True)
        subprocess.run([
            "cc", "-std=c99", "-O2", "-Wall", "-Wextra", "-pedantic", "-I", HERE.parent / "include",
            HERE / "c_calls.c", "-L", library, "-lgradus", f"-Wl,-rpath,{library}",
            "-Wl,--allow-shlib-undefined", "-o", folder / "c_calls"
        ], check=True)
        done = subprocess.run([folder / "c_calls", folder / "model"], check=True,
                              capture_output=True, text=True,
                              env={**os.environ, "OMP_NUM_THREADS": "1"})
    found = json.loads(done.stdout)
    return [
        at_most(1, quantity=f"{what} of the C interface", gradus=found[key], other=LIMIT,
                unit="µs", other_name="the bound")
        for key, what in (("call", "a call without tensors"), ("batch", "a call with two tensors"))
    ]
