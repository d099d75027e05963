// tracker_tool FOLDER: writes a short run with the TensorBoard tracker, stops, and goes on from an
// earlier step.
#include <gradus/trackers/tensorboard.h>

#include <nlohmann/json.hpp>

int main(int count, char** words) {
  if (count != 2) return 2;
  const nlohmann::json args = {{"learning_rate", 5e-5},
                               {"optim", "adamw_torch_fused"},
                               {"bf16", false},
                               {"seed", 42},
                               {"text", "ünïcode \"quoted\""},
                               {"none", nullptr}};
  const auto run = [&](int64_t first, int64_t last, double offset) {
    auto tracker = gradus::tensorboard_tracker("unused", words[1]);
    tracker->begin(args, {{"hidden_size", 64}});
    for (int64_t step = first; step <= last; ++step)
      tracker->log({{"loss", 1.0 / double(step) + offset},
                    {"eval_accuracy", 0.01 * double(step)},
                    {"test_runtime", 2.5}},
                   step);
  };
  run(1, 300, 0.0);
  run(251, 320, 1.0);  // resumed from a checkpoint at 250
  return 0;
}
