"""benchmarks/gpu/kernel_kinds.py: kinds by name, and the table of a small profile."""
import json
import os
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../benchmarks/gpu"))
from kernel_kinds import kind_of, read_profile, table  # noqa: E402
from step_floors import byte_seconds, products, shape_of  # noqa: E402

LLAMA = dict(model_type="llama", vocab_size=128256, hidden_size=2048, intermediate_size=8192,
             num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8)


def event(name, begin, length, category="kernel"):
    return {"ph": "X", "cat": category, "name": name, "ts": begin, "dur": length}


class KernelKinds(unittest.TestCase):
    def test_names(self):
        kinds = {
            "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNT": "GEMM",
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn": "GEMM",
            "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma": "attention",
            "void gradus::cuda::(anonymous namespace)::backward_rows<__nv_bfloat16>": "norms",
            "void gradus::cuda::(anonymous namespace)::adamw_chunks(Chunks)": "optimizer",
            "void gradus::cuda::(anonymous namespace)::cross_entropy_row<bf16>": "loss head",
            "void gradus::cuda::(anonymous namespace)::swiglu_forward_vectors": "elementwise",
            "Memcpy DtoD (Device -> Device)": "copies",
            "something_else": "other",
        }
        for name, kind in kinds.items():
            self.assertEqual(kind_of(name), kind, name)

    def test_table(self):
        trace = {
            "traceEvents": [
                event("nvjet_a", 0, 4000),
                event("Memset (Device)", 5000, 1000, "gpu_memset"),
                event("nvjet_a", 6000, 2000),
                event("cudaGraphLaunch", 0, 9000, "cuda_runtime"), {"ph": "M", "name": "process"}
            ]
        }
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "profile.json")
            with open(path, "w") as file:
                json.dump(trace, file)
            found = read_profile(path, steps=2)
        self.assertEqual(found.kinds["GEMM"], 3.0)
        self.assertEqual(found.kinds["gaps"], 0.5)
        self.assertEqual(found.step_ms, 4.0)
        lines = table(found, {"GEMM": 2.5}).splitlines()
        self.assertIn("| GEMM | 3.00 | 1 | 2.50 | 0.50 |", lines)
        self.assertEqual(lines[-1], "| **step** | 4.00 | 1 | 2.50 | 1.50 |")

    def test_products_are_those_of_the_model(self):
        shape = shape_of(LLAMA)
        weights = sum(n * k * times for _, n, k, times in products(shape, 8192))
        self.assertEqual(weights,
                         16 * (2048 * 2048 * 2 + 2 * 2048 * 512 + 3 * 2048 * 8192) + 128256 * 2048)
        # The optimizer of 1.24 B parameters cannot take less than 8.6 ms.
        self.assertAlmostEqual(byte_seconds(shape, 8192, 1235814400)["optimizer"], 0.00862, 4)


if __name__ == "__main__":
    unittest.main()
