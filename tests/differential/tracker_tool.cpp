// tracker_tool FOLDER: TensorBoard runs below FOLDER for tensorboard_test.py. "resumed" stops and
// goes on from an earlier step; "histograms" has one; "evaluated" is evaluated after training, by
// the same tracker and then by another process.
//
// tracker_tool replay NAME RUN.json OUTPUT_DIR: gives the tracker NAME what the file says, for
// trackers_test.py. "openmetrics" then waits until its input ends.
//
// tracker_tool flood NAME,NAME… COUNT OUTPUT_DIR: logs COUNT entries and prints how many
// microseconds one took the caller, on the clock and of its thread's time, and the seconds of
// `finish`.
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/trackers/tensorboard.h>
#include <time.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace {

using nlohmann::json;

int write_boards(const std::filesystem::path& folder) {
  const json args = {{"learning_rate", 5e-5},
                     {"optim", "adamw_torch_fused"},
                     {"bf16", false},
                     {"seed", 42},
                     {"text", "ünïcode \"quoted\""},
                     {"none", nullptr}};
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

  board("histograms")
      ->log_histogram("weights/a",
                      {.min = -1,
                       .max = 2,
                       .sum = 1.5,
                       .sum_squares = 5.25,
                       .limits = {-1.5, 0, 1, 2.5},
                       .counts = {0, 1, 1, 1}},
                      7);

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

/// Values come as texts, which may be "nan" and "inf".
std::map<std::string, double> values_of(const json& entry) {
  std::map<std::string, double> values;
  for (const auto& [key, text] : entry["values"].items())
    values[key] = std::stod(text.get<std::string>());
  return values;
}

int replay(const std::string& name, const std::string& file, const std::string& output_dir) {
  gradus::set_log_level(gradus::LogLevel::info);
  const auto run = gradus::read_json(file);
  const auto tracker = gradus::make_tracker(name, output_dir);
  for (const auto& part : run["parts"]) {
    tracker->begin(run["args"], run["config"]);
    tracker->model_parameters(run["parameters"].get<int64_t>());
    if (part.contains("from")) tracker->training_begins(part["from"].get<int64_t>());
    for (const auto& entry : part["entries"]) {
      const auto step = entry["step"].get<int64_t>();
      if (entry.value("predict", false))
        tracker->log_prediction(values_of(entry), step);
      else
        tracker->log(values_of(entry), step);
    }
    tracker->finish();
  }
  if (name == "openmetrics") {
    std::cout << "ready" << std::endl;
    std::cin.get();
  }
  return 0;
}

int flood(const std::string& names, int64_t count, const std::string& output_dir) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  std::vector<std::shared_ptr<gradus::Tracker>> trackers;
  std::istringstream list(names);
  for (std::string name; std::getline(list, name, ',');)
    trackers.push_back(gradus::make_tracker(name, output_dir));
  for (const auto& tracker : trackers) {
    tracker->begin({{"seed", 42}, {"output_dir", output_dir}}, nullptr);
    tracker->training_begins(0);
  }
  // Time of this thread, which other programs on the machine do not lengthen.
  const auto thread_seconds = [] {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
  };
  double spent = 0, worked = 0;
  for (int64_t step = 1; step <= count; ++step) {
    const std::map<std::string, double> values = {{"loss", 1.0 / double(step)},
                                                  {"grad_norm", 0.1234567},
                                                  {"learning_rate", 5e-5 / double(step)},
                                                  {"epoch", 0.001 * double(step)}};
    const auto start = Clock::now();
    const double before = thread_seconds();
    for (const auto& tracker : trackers) tracker->log(values, step);
    worked += thread_seconds() - before;
    spent += seconds_since(start);
    while (seconds_since(start) < 0.001) {  // a thousand entries a second
    }
  }
  const auto start = Clock::now();
  for (const auto& tracker : trackers) tracker->finish();
  std::cout << "log_us " << 1e6 * spent / double(count) << " cpu_us "
            << 1e6 * worked / double(count) << " finish_s " << seconds_since(start) << '\n';
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const std::string verb = count > 1 ? words[1] : "";
  if (count == 2) return write_boards(verb);
  if (count == 5 && verb == "replay") return replay(words[2], words[3], words[4]);
  if (count == 5 && verb == "flood") return flood(words[2], std::stoll(words[3]), words[4]);
  return 2;
}
