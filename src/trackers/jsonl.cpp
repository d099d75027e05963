#include <gradus/core/json.h>
#include <gradus/trackers/jsonl.h>

#include "trackers/tracker_file.h"

namespace gradus {
namespace {

class JsonlTracker : public Tracker {
 public:
  explicit JsonlTracker(std::filesystem::path file) : path_(std::move(file)) {}

  void log(const std::map<std::string, double>& values, int64_t step) override {
    if (!opened_) {
      opened_ = true;
      if (file_.open(path_)) file_.drop_partial_line();
    }
    // Written piece by piece: a document of it would cost more than the rest together.
    line_ = "{\"step\": " + std::to_string(step);
    for (const auto& [key, value] : values) {
      if (key == "step") continue;
      auto& name = names_[key];
      if (name.empty()) name = ", " + dump_json(nlohmann::json(key)) + ": ";
      line_.append(name).append(json_number(value));
    }
    file_.append(line_ += "}\n");
  }

  void finish() override {
    file_.close();
    opened_ = false;
  }

 private:
  std::filesystem::path path_;
  TrackerFile file_;
  std::string line_;
  std::map<std::string, std::string> names_;  // keys as they stand in a line
  bool opened_ = false;
};

}  // namespace

std::shared_ptr<Tracker> jsonl_logger(const std::filesystem::path& file) {
  return std::make_shared<JsonlTracker>(file);
}

}  // namespace gradus
