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
    nlohmann::ordered_json entry;
    entry["step"] = step;
    for (const auto& [key, value] : values) entry[key] = value;
    file_.append(dump_json(entry) + "\n");
  }

  void finish() override {
    file_.close();
    opened_ = false;
  }

 private:
  std::filesystem::path path_;
  TrackerFile file_;
  bool opened_ = false;
};

}  // namespace

std::shared_ptr<Tracker> jsonl_logger(const std::filesystem::path& file) {
  return std::make_shared<JsonlTracker>(file);
}

}  // namespace gradus
