#include "runs/run_reader.h"

#include <fcntl.h>
#include <gradus/checkpoint/checkpoint_dir.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "core/open_file.h"
#include "runs/log_line.h"

namespace gradus::runs {
namespace fs = std::filesystem;
namespace {

constexpr size_t kChunk = size_t(4) << 20;
constexpr size_t kLongestLine = size_t(8) << 20;
constexpr size_t kMessages = 400;
constexpr size_t kLongestShown = 4000;
constexpr size_t kMostRuns = 10000;
constexpr int64_t kMostSeries = 5000;

bool is_file(const fs::path& path) {
  std::error_code unknown;
  return fs::is_regular_file(path, unknown);
}

double number_of(const nlohmann::json& object, const char* key, double otherwise = 0) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : otherwise;
}

std::string text_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

/// A step, which may be any number in a file of strangers.
int64_t step_of(double value, int64_t otherwise) {
  return std::abs(value) <= 1e18 ? int64_t(value) : otherwise;
}

int64_t whole_number_of(const nlohmann::json& object, const char* key, int64_t otherwise = 0) {
  return step_of(number_of(object, key, double(otherwise)), otherwise);
}

bool is_place(std::string_view key) { return key == "step" || key == "epoch" || key == "time"; }

}  // namespace

/// The whole lines of a file that grows.
class RunReader::Lines {
 public:
  explicit Lines(fs::path path) : path_(std::move(path)) {}
  ~Lines() { close(); }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;

  /// Whether the file under this name is still the one that was read so far.
  bool is_same() {
    if (descriptor_ < 0) return offset_ == 0;
    struct stat named{}, open{};
    if (::fstat(descriptor_, &open) != 0 || ::stat(path_.c_str(), &named) != 0) return false;
    if (named.st_ino != open.st_ino || named.st_dev != open.st_dev) return false;
    if (size_t(open.st_size) < offset_) return false;
    // Cut and written again since, or a new file with the number of the old.
    std::string head(head_.size(), '\0');
    return ::pread(descriptor_, head.data(), head.size(), 0) == ssize_t(head.size()) &&
           head == head_;
  }

  /// The next whole lines; empty when there are none yet.
  std::string_view next() {
    if (descriptor_ < 0) {
      try {
        descriptor_ = open_for_reading(path_);
      } catch (const Error&) {
        return {};
      }
    }
    buffer_.erase(0, used_);
    used_ = 0;
    for (;;) {
      const size_t before = buffer_.size();
      buffer_.resize(before + kChunk);
      const auto count = ::pread(descriptor_, buffer_.data() + before, kChunk, off_t(offset_));
      buffer_.resize(before + size_t(std::max<ssize_t>(count, 0)));
      if (count <= 0) return {};
      if (offset_ == 0) head_ = buffer_.substr(0, std::min<size_t>(buffer_.size(), 256));
      offset_ += size_t(count);
      const auto end = std::string_view(buffer_).substr(before).rfind('\n');
      if (end != std::string_view::npos) {
        used_ = before + end + 1;
        return std::string_view(buffer_).substr(0, used_);
      }
      if (buffer_.size() > kLongestLine) buffer_.clear();  // no log of ours
    }
  }

  size_t bytes_left() const {
    struct stat open{};
    if (descriptor_ < 0 || ::fstat(descriptor_, &open) != 0) return 0;
    return size_t(open.st_size) > offset_ ? size_t(open.st_size) - offset_ : 0;
  }

 private:
  void close() {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
  }

  fs::path path_;
  int descriptor_ = -1;
  size_t offset_ = 0, used_ = 0;
  std::string buffer_, head_;
};

RunReader::RunReader(fs::path path) : path_(std::move(path)) {
  std::error_code unknown;
  folder_ = fs::is_directory(path_, unknown) ? path_ : path_.parent_path();
  if (folder_.empty()) folder_ = ".";
}
RunReader::~RunReader() = default;
RunReader::RunReader(RunReader&&) noexcept = default;
RunReader& RunReader::operator=(RunReader&&) noexcept = default;

fs::path RunReader::best_source() const {
  if (folder_ != path_) return is_file(path_) ? path_ : fs::path();
  for (const auto* name : {kRunLogFile, "log.jsonl", "log.csv", "trainer_state.json"})
    if (is_file(path_ / name)) return path_ / name;
  const auto newest = newest_checkpoint(path_);
  return newest ? newest->path / "trainer_state.json" : fs::path();
}

void RunReader::start_over(const fs::path& file) {
  file_ = file;
  data_ = {};
  order_.clear();
  columns_.clear();
  state_time_ = {};
  lines_ = file.extension() == ".json" ? nullptr : std::make_unique<Lines>(file);
}

bool RunReader::poll(size_t bytes) {
  fs::path source;
  try {
    source = best_source();
  } catch (const Error&) {  // the folder cannot be listed for the moment
  }
  if (source.empty()) return false;  // what was read of a run that is gone stays
  bool changed = false;
  if (source != file_ || (lines_ && !lines_->is_same())) {
    start_over(source);
    changed = true;
  }
  if (!lines_) return read_state() || changed;
  for (size_t read = 0; read < bytes;) {
    const auto text = lines_->next();
    if (text.empty()) break;
    take_lines(text);
    read += text.size();
    changed = true;
  }
  return changed;
}

size_t RunReader::bytes_left() const { return lines_ ? lines_->bytes_left() : 0; }

bool RunReader::read_state() {
  std::error_code unknown;
  const auto time = fs::last_write_time(file_, unknown);
  if (unknown || time == state_time_) return false;
  nlohmann::json state;
  try {
    state = read_json(file_);
  } catch (const Error&) {
    return false;  // it is being replaced, or is damaged
  }
  state_time_ = time;
  data_ = {};
  order_.clear();
  if (!state.is_object()) return true;
  data_.said = RunStatus::unknown;
  if (const auto history = state.find("log_history"); history != state.end() && history->is_array())
    for (const auto& entry : *history) take_entry(entry);
  data_.step = std::max(data_.step, whole_number_of(state, "global_step"));
  data_.max_steps = whole_number_of(state, "max_steps");
  data_.epoch = number_of(state, "epoch");
  if (const auto best = state.find("best_metric"); best != state.end() && best->is_number())
    data_.best_metric = best->get<double>();
  data_.best_checkpoint = fs::path(text_of(state, "best_model_checkpoint")).filename().string();
  try {
    for (const auto& place : {folder_, file_.parent_path()})
      if (is_file(place / "training_args.json")) {
        data_.settings = read_json(place / "training_args.json");
        break;
      }
  } catch (const Error&) {  // it stays without
  }
  return true;
}

void RunReader::take_lines(std::string_view text) {
  const bool is_csv = file_.extension() == ".csv";
  while (!text.empty()) {
    const auto end = text.find('\n');
    const auto line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty()) continue;
    if (is_csv)
      take_csv_line(line);
    else
      take_json_line(line);
  }
}

Series& RunReader::series_at(size_t position, std::string_view key) {
  if (position < order_.size() && order_[position].first == key) return *order_[position].second;
  auto found = data_.series.find(key);
  if (found == data_.series.end()) {
    const bool is_full = data_.series.size() >= size_t(kMostSeries);
    found = data_.series.try_emplace(std::string(is_full ? "(further metrics)" : key)).first;
  }
  if (order_.size() <= position) order_.resize(position + 1);
  order_[position] = {std::string(key), &found->second};
  return found->second;
}

void RunReader::take_json_line(std::string_view line) {
  if (line.starts_with("{\"event\"")) {
    try {
      const auto event = parse_json(line);
      if (event.is_object()) take_event(event);
    } catch (const Error&) {  // a line that somebody else wrote
    }
    return;
  }
  line_.clear();
  double step = std::nan(""), time = 0, epoch = std::nan("");
  const bool is_plain = read_log_line(line, [&](std::string_view key, double value) {
    if (key == "step")
      step = value;
    else if (key == "time")
      time = value;
    else if (key == "epoch")
      epoch = value;
    else
      line_.emplace_back(key, value);
  });
  if (!is_plain) {
    nlohmann::json entry;
    try {
      entry = parse_json(line);
    } catch (const Error&) {
      return;  // no line of a log
    }
    if (entry.is_object()) take_entry(entry);
    return;
  }
  data_.step = step_of(step, data_.step);
  for (size_t i = 0; i < line_.size(); ++i)
    series_at(i, line_[i].first).add(data_.step, line_[i].second, time);
  if (std::isfinite(epoch)) data_.epoch = epoch;
  data_.last_sign = std::max(data_.last_sign, time);
  keep_message({time, "", std::string(line)});
}

void RunReader::take_entry(const nlohmann::json& entry) {
  if (!entry.is_object()) return;
  const auto step = whole_number_of(entry, "step", data_.step);
  const auto time = number_of(entry, "time");
  size_t position = 0;
  for (const auto& [key, value] : entry.items())
    if (value.is_number() && !is_place(key))
      series_at(position++, key).add(step, value.get<double>(), time);
  data_.step = step;
  data_.epoch = number_of(entry, "epoch", data_.epoch);
  keep_message({time, "", dump_json(entry)});
}

void RunReader::take_event(const nlohmann::json& event) {
  const auto kind = text_of(event, "event");
  const auto time = number_of(event, "time");
  data_.last_sign = std::max(data_.last_sign, time);
  if (kind == "begin") {
    data_.session_step = data_.step = whole_number_of(event, "step");
    data_.max_steps = whole_number_of(event, "max_steps");
    data_.session_began = time;
    if (data_.began == 0) data_.began = time;
    data_.host = text_of(event, "host");
    data_.process = whole_number_of(event, "pid");
    data_.process_start = whole_number_of(event, "process_start");
    data_.said = RunStatus::running;
    data_.end_reason.clear();
    if (const auto found = event.find("settings"); found != event.end()) data_.settings = *found;
    if (const auto found = event.find("model"); found != event.end()) data_.model = *found;
    if (const auto count = whole_number_of(event, "parameters"); count > 0)
      data_.parameters = count;
    for (auto& [key, series] : data_.series) series.drop_after(data_.step);
    keep_message({time, "info",
                  data_.step > 0 ? "resumed after step " + std::to_string(data_.step) : "started"});
  } else if (kind == "progress") {
    take_progress(event, time);
  } else if (kind == "message") {
    keep_message({time, text_of(event, "level"), text_of(event, "text")});
  } else if (kind == "best") {
    data_.best_metric = number_of(event, "metric");
    data_.best_checkpoint = text_of(event, "checkpoint");
  } else if (kind == "end") {
    const auto how = text_of(event, "how");
    data_.said = how == "finished"      ? RunStatus::finished
                 : how == "interrupted" ? RunStatus::interrupted
                                        : RunStatus::failed;
    data_.end_reason = text_of(event, "reason");
    keep_message({time, how == "failed" ? "error" : "info",
                  how + (data_.end_reason.empty() ? "" : ": " + data_.end_reason)});
  }
}

void RunReader::take_progress(const nlohmann::json& event, double time) {
  data_.step = whole_number_of(event, "step", data_.step);
  data_.epoch = number_of(event, "epoch", data_.epoch);
  if (const auto rate = number_of(event, "steps_per_second"); rate > 0)
    data_.series["steps_per_second"].add(data_.step, rate, time);
  const auto system = event.find("system");
  if (system == event.end() || !system->is_object()) return;
  for (const auto& [key, value] : system->items())
    if (value.is_number() && data_.series.size() < size_t(kMostSeries))
      data_.series["system/" + key].add(data_.step, value.get<double>(), time);
}

void RunReader::take_csv_line(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') {
      if (quoted && i + 1 < line.size() && line[i + 1] == '"')
        fields.back() += line[++i];
      else
        quoted = !quoted;
    } else if (line[i] == ',' && !quoted) {
      fields.emplace_back();
    } else if (line[i] != '\r') {
      fields.back() += line[i];
    }
  }
  if (columns_.empty()) {
    columns_ = std::move(fields);
    return;
  }
  nlohmann::json entry = nlohmann::json::object();
  for (size_t i = 0; i < std::min(fields.size(), columns_.size()); ++i) {
    char* end = nullptr;
    const double value = std::strtod(fields[i].c_str(), &end);
    if (!fields[i].empty() && *end == '\0') entry[columns_[i]] = value;
  }
  take_entry(entry);
}

void RunReader::keep_message(RunMessage message) {
  if (message.text.size() > kLongestShown) {
    size_t end = kLongestShown;  // not within a character
    while (end > 0 && (static_cast<unsigned char>(message.text[end]) & 0xc0) == 0x80) --end;
    message.text.resize(end);
    message.text += " …";
  }
  if (data_.messages.size() >= kMessages) data_.messages.pop_front();
  data_.messages.push_back(std::move(message));
}

bool is_run_folder(const fs::path& folder) {
  for (const auto* name : {kRunLogFile, "log.jsonl", "log.csv", "trainer_state.json"})
    if (is_file(folder / name)) return true;
  return false;
}

namespace {

void find_runs_in(const fs::path& folder, int depth, std::vector<fs::path>& found) {
  std::error_code unknown;
  std::vector<fs::path> below;
  bool has_checkpoints = false;
  for (fs::directory_iterator entry(folder, unknown), end; !unknown && entry != end;
       entry.increment(unknown)) {
    const auto name = entry->path().filename().string();
    std::error_code kind;
    if (entry->is_symlink(kind) || !entry->is_directory(kind)) continue;
    if (name.starts_with("checkpoint-"))
      has_checkpoints = true;
    else if (!name.starts_with("."))
      below.push_back(entry->path());
  }
  if (found.size() >= kMostRuns) return;
  if (has_checkpoints || is_run_folder(folder)) found.push_back(folder);
  std::sort(below.begin(), below.end());
  if (depth > 0)
    for (const auto& each : below) find_runs_in(each, depth - 1, found);
}

}  // namespace

std::vector<fs::path> find_runs(const fs::path& root, int depth) {
  std::vector<fs::path> found;
  find_runs_in(root, depth, found);
  return found;
}

}  // namespace gradus::runs
