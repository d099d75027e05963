#include <gradus/core/files.h>
#include <gradus/trackers/csv.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/append_file.h"
#include "trackers/background_tracker.h"

namespace gradus {
namespace {

/// A name as a field: quoted where it has to be.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char letter : text)
    quoted += letter == '"' ? std::string("\"\"") : std::string(1, letter);
  return quoted + '"';
}

/// The shortest text that reads back as the same number.
std::string csv_number(double value) {
  if (std::isnan(value)) return "nan";
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value);
  return {text, end.ptr};
}

/// The fields of the line that begins at `at`, which moves behind it.
std::vector<std::string> csv_fields(std::string_view text, size_t& at) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (; at < text.size(); ++at) {
    const char letter = text[at];
    if (letter == '"') {
      if (quoted && at + 1 < text.size() && text[at + 1] == '"')
        fields.back() += text[++at];
      else
        quoted = !quoted;
    } else if (letter == ',' && !quoted) {
      fields.emplace_back();
    } else if (letter == '\n' && !quoted) {
      ++at;
      break;
    } else {
      fields.back() += letter;
    }
  }
  return fields;
}

class CsvWriter : public TrackerWriter {
 public:
  explicit CsvWriter(std::filesystem::path file) : path_(std::move(file)) {}

  void begin(const TrackedRun&) override {
    if (path_.has_parent_path()) make_directory(path_.parent_path());
    columns_ = {"step"};
    size_ = 0;
    if (!std::filesystem::exists(path_)) return;
    const auto text = read_file(path_);
    if (text.find('\n') == std::string::npos) return;  // not even a whole header
    size_t at = 0;
    columns_ = csv_fields(text, at);
    size_ = int64_t(text.rfind('\n')) + 1;
  }

  void training_begins(int64_t step) override {
    if (size_ == 0) return;
    rewrite(columns_.size(), step);
  }

  void write(std::span<const TrackedEntry> entries) override {
    const auto known = columns_.size();
    std::string lines;
    for (const auto& entry : entries) {
      if (entry.is_predict) continue;
      for (const auto& [key, value] : entry.values)
        if (std::find(columns_.begin(), columns_.end(), key) == columns_.end())
          columns_.push_back(key);
    }
    for (const auto& entry : entries)
      if (!entry.is_predict) lines += row(entry);
    if (size_ == 0 || columns_.size() > known) rewrite(known, std::nullopt);
    append(lines);
  }

  void finish() override { file_.reset(); }

 private:
  std::string row(const TrackedEntry& entry) const {
    std::string line = std::to_string(entry.step);
    for (size_t i = 1; i < columns_.size(); ++i) {
      line += ',';
      const auto found = entry.values.find(columns_[i]);
      if (found != entry.values.end()) line += csv_number(found->second);
    }
    return line + '\n';
  }

  std::string header() const {
    std::string line;
    for (const auto& column : columns_) line += (line.empty() ? "" : ",") + csv_field(column);
    return line + '\n';
  }

  /// The file with all columns; its rows have `before` of them. Those after `last_step` are left
  /// out.
  void rewrite(size_t before, std::optional<int64_t> last_step) {
    std::string text = header();
    if (size_ > 0) {
      const auto old = read_file(path_).substr(0, size_t(size_));
      size_t at = 0;
      csv_fields(old, at);
      const std::string empty(columns_.size() - before, ',');
      while (at < old.size()) {
        const auto end = std::min(old.find('\n', at), old.size());
        int64_t step = 0;
        std::from_chars(old.data() + at, old.data() + end, step);
        if (!last_step || step <= *last_step) text += old.substr(at, end - at) + empty + '\n';
        at = end + 1;
      }
    }
    file_.reset();
    try {
      write_file_atomically(path_, text);
    } catch (...) {
      columns_.resize(before);  // they come again with the next attempt
      throw;
    }
    size_ = int64_t(text.size());
  }

  void append(const std::string& lines) {
    if (file_ == nullptr) file_ = std::make_unique<AppendFile>(path_, size_);
    try {
      file_->append(lines);
      file_->flush();
    } catch (...) {
      file_.reset();  // the next attempt cuts off what was written of these lines
      throw;
    }
    size_ += int64_t(lines.size());
  }

  std::filesystem::path path_;
  std::vector<std::string> columns_;
  int64_t size_ = 0;  // of what is whole
  std::unique_ptr<AppendFile> file_;
};

}  // namespace

std::shared_ptr<Tracker> csv_tracker(const std::filesystem::path& file) {
  return in_background("csv", std::make_unique<CsvWriter>(file));
}

}  // namespace gradus
