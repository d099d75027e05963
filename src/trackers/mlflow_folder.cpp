#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <yaml-cpp/yaml.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "core/append_file.h"
#include "trackers/mlflow_store.h"
#include "trackers/tracked_run.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;

/// A text as a scalar of YAML, which wants characters that cannot be printed as numbers.
std::string yaml_text(const std::string& text) {
  std::string quoted = "\"";
  for (size_t at = 0; at < text.size();) {
    const auto begin = at++;
    while (at < text.size() && (text[at] & 0xc0) == 0x80) ++at;
    const auto bytes = text.substr(begin, at - begin);
    const char32_t character = tracked::characters(bytes)[0];
    const bool is_hidden = character < 0x20 || (character >= 0x7f && character < 0xa0) ||
                           character == 0x2028 || character == 0x2029 || character == 0xfeff ||
                           character >= 0xfffd;
    if (is_hidden && character < 0x10000)
      quoted += fmt::format("\\u{:04x}", uint32_t(character));
    else
      quoted += (bytes == "\"" || bytes == "\\" ? "\\" : "") + bytes;
  }
  return quoted + "\"";
}

std::string mlflow_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return dump_json(nlohmann::json(value));
}

/// A value of a meta.yaml; empty where it is not there or cannot be read.
std::string meta_value(const fs::path& file, const std::string& key) {
  try {
    return YAML::Load(read_file(file))[key].as<std::string>("");
  } catch (const YAML::Exception&) {
    return "";
  }
}

/// Whether a file of this name can lie in `folder`: "a/b" cannot where "a" is a file, nor "a" where
/// "a/b" is one.
bool has_place(const fs::path& folder, const std::string& name) {
  std::error_code unknown;
  if (fs::is_directory(folder / name, unknown)) return false;
  for (auto parent = (folder / name).parent_path(); parent != folder; parent = parent.parent_path())
    if (fs::exists(parent, unknown) && !fs::is_directory(parent, unknown)) return false;
  return true;
}

class MlflowFolder : public MlflowStore {
 public:
  explicit MlflowFolder(const fs::path& folder) : root_(fs::absolute(folder).lexically_normal()) {}

  std::string create_run(const MlflowRun& run) override {
    const auto experiment = find_experiment(run.experiment.empty() ? "Default" : run.experiment);
    const auto id = tracked::random_text(32);
    const auto folder = root_ / experiment / id;
    for (const char* part : {"metrics", "params", "artifacts", "tags"})
      make_directory(folder / part);
    for (const auto& [key, value] : run.tags) write_file_atomically(folder / "tags" / key, value);
    write_file_atomically(
        folder / "meta.yaml",
        fmt::format("artifact_uri: {}\nend_time: null\nentry_point_name: ''\nexperiment_id: '{}'\n"
                    "lifecycle_stage: active\nrun_id: {}\nrun_name: {}\nsource_name: ''\n"
                    "source_type: 4\nsource_version: ''\nstart_time: {}\nstatus: 1\ntags: []\n"
                    "user_id: {}\n",
                    yaml_text("file://" + (folder / "artifacts").string()), experiment, id,
                    yaml_text(run.name), run.start_time, yaml_text(run.user)));
    return id;
  }

  void describe_run(const std::string& run_id, const MlflowParameters& parameters,
                    const std::map<std::string, std::string>& tags) override {
    const auto folder = find_run(run_id);
    for (const auto& [key, value] : parameters) {
      const auto file = folder / "params" / key;
      if (fs::exists(file) || !takes(folder / "params", key)) continue;
      make_directory(file.parent_path());
      write_file_atomically(file, value);
    }
    for (const auto& [key, value] : tags) {
      if (!takes(folder / "tags", key)) continue;
      make_directory((folder / "tags" / key).parent_path());
      write_file_atomically(folder / "tags" / key, value);
    }
  }

  void log_metrics(const std::string& run_id, std::span<const MlflowMetric> metrics) override {
    const auto folder = find_run(run_id);
    std::map<std::string, std::string> lines;
    for (const auto& metric : metrics)
      lines[metric.key] +=
          fmt::format("{} {} {}\n", metric.time, mlflow_number(metric.value), metric.step);
    std::erase_if(lines, [&](const auto& line) {
      return !sizes_.contains(line.first) && !takes(folder / "metrics", line.first);
    });
    for (const auto& [key, text] : lines) {
      const auto file = folder / "metrics" / key;
      make_directory(file.parent_path());
      if (!sizes_.contains(key)) sizes_[key] = fs::exists(file) ? int64_t(fs::file_size(file)) : 0;
      AppendFile out(file, sizes_[key]);  // cut to what is known to be whole
      out.append(text);
      out.flush();
    }
    for (const auto& [key, text] : lines) sizes_[key] += int64_t(text.size());
  }

  void end_run(const std::string& run_id, int64_t end_time) override {
    const auto file = find_run(run_id) / "meta.yaml";
    auto text = read_file(file);
    const auto replace = [&](const std::string& key, const std::string& value) {
      const auto at = ("\n" + text).find("\n" + key + ": ");
      if (at == std::string::npos) return;
      text.replace(at, std::min(text.find('\n', at), text.size()) - at, key + ": " + value);
    };
    replace("end_time", std::to_string(end_time));
    replace("status", "3");
    write_file_atomically(file, text);
  }

 private:
  /// The id of the experiment, which is made if there is none of that name.
  std::string find_experiment(const std::string& name) {
    make_directory(root_);
    for (const auto& entry : fs::directory_iterator(root_))
      if (fs::exists(entry.path() / "meta.yaml") &&
          meta_value(entry.path() / "meta.yaml", "name") == name)
        return entry.path().filename();
    const auto id = name == "Default" ? "0" : "1" + tracked::random_text(17, "0123456789");
    make_directory(root_ / id);
    const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count();
    write_file_atomically(
        root_ / id / "meta.yaml",
        fmt::format("artifact_location: {}\ncreation_time: {}\nexperiment_id: '{}'\n"
                    "last_update_time: {}\nlifecycle_stage: active\nname: {}\n",
                    yaml_text("file://" + (root_ / id).string()), now, id, now, yaml_text(name)));
    return id;
  }

  fs::path find_run(const std::string& run_id) {
    if (run_folder_.filename() == run_id) return run_folder_;
    std::error_code unknown;  // of a folder that is not there
    for (const auto& entry : fs::directory_iterator(root_, unknown))
      if (fs::exists(entry.path() / run_id / "meta.yaml", unknown))
        return run_folder_ = entry.path() / run_id;
    throw Error("G-TRACK-2", ErrorKind::io, root_.string() + " has no run " + run_id,
                "MLFLOW_RUN_ID names the run; unset it to begin a new one.");
  }

  /// Whether there is a place for this name; says once where there is none.
  bool takes(const fs::path& folder, const std::string& name) {
    if (has_place(folder, name)) return true;
    if (refused_.insert(folder / name).second)
      log_warning(
          fmt::format("mlflow: '{}' is left out: a folder of MLflow cannot hold it beside a "
                      "name that begins with it",
                      name));
    return false;
  }

  fs::path root_, run_folder_;
  std::map<std::string, int64_t> sizes_;  // of the metrics' files
  std::set<fs::path> refused_;
};

}  // namespace

std::unique_ptr<MlflowStore> mlflow_folder(const fs::path& folder) {
  return std::make_unique<MlflowFolder>(folder);
}

}  // namespace gradus
