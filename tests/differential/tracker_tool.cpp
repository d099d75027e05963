// tracker_tool FOLDER: TensorBoard runs below FOLDER for tensorboard_test.py. "resumed" stops and
// goes on from an earlier step; "evaluated" is evaluated after training, by the same tracker and
// then by another process.
#include <gradus/trackers/tensorboard.h>

#include <filesystem>
#include <nlohmann/json.hpp>

int main(int count, char** words) {
  if (count != 2) return 2;
  const nlohmann::json args = {{"learning_rate", 5e-5},
                               {"optim", "adamw_torch_fused"},
                               {"bf16", false},
                               {"seed", 42},
                               {"text", "ünïcode \"quoted\""},
                               {"none", nullptr}};
  const std::filesystem::path folder = words[1];
  const auto train = [&](gradus::Tracker& tracker, int64_t first, int64_t last, double offset) {
    tracker.begin(args, {{"hidden_size", 64}});
    tracker.training_begins(first - 1);
    for (int64_t step = first; step <= last; ++step)
      tracker.log({{"loss", 1.0 / double(step) + offset},
                   {"eval_accuracy", 0.01 * double(step)},
                   {"test_runtime", 2.5}},
                  step);
  };
  const auto board = [&](const char* run) {
    return gradus::tensorboard_tracker("unused", folder / run);
  };
  train(*board("resumed"), 1, 300, 0.0);
  train(*board("resumed"), 251, 320, 1.0);  // from a checkpoint at 250

  const auto tracker = board("evaluated");
  train(*tracker, 1, 20, 0.0);
  tracker->log({{"train_runtime", 7.0}}, 20);
  tracker->finish();
  tracker->begin(args, nullptr);
  tracker->log({{"eval_loss", 0.5}}, 20);
  tracker->finish();
  for (const int64_t step :
       {20, 0}) {  // of the trained model, and of one whose steps are not known
    const auto evaluation = board("evaluated");
    evaluation->begin(args, nullptr);
    evaluation->log({{"test_loss", 0.25}}, step);
  }
  return 0;
}
