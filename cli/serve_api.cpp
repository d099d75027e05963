#include "serve_api.h"

#include <fmt/format.h>
#include <gradus/checkpoint/checkpoint_dir.h>
#include <gradus/checkpoint/manifest.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

namespace gradus::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostRows = 200;
constexpr int64_t kLargestMedia = int64_t(64) << 20;
constexpr size_t kMostCurves = 2000;

/// Differ in every run and say nothing about it.
bool is_dull_setting(const std::string& name) {
  return name == "output_dir" || name == "logging_dir" || name == "run_name" ||
         name == "overwrite_output_dir" || name == "resume_from_checkpoint" ||
         name == "disable_tqdm" || name.starts_with("log_level") || name.starts_with("push_to");
}

nlohmann::json number_or_null(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
}

double number_in(const HttpRequest& request, const char* name, double otherwise) {
  const auto found = request.query.find(name);
  if (found == request.query.end() || found->second.empty()) return otherwise;
  double value = otherwise;
  const auto& text = found->second;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return std::isfinite(value) ? value : otherwise;
}

std::string text_in(const HttpRequest& request, const char* name) {
  const auto found = request.query.find(name);
  return found != request.query.end() ? found->second : "";
}

/// "0-9,12" as numbers, each below `limit`, at most `kMostCurves`.
std::vector<size_t> listed(const std::string& text, size_t limit) {
  std::vector<size_t> found;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end && found.size() < kMostCurves) {
    size_t first = 0, last = 0;
    auto result = std::from_chars(at, end, first);
    if (result.ec != std::errc()) break;
    at = result.ptr;
    last = first;
    if (at < end && *at == '-') {
      result = std::from_chars(at + 1, end, last);
      if (result.ec != std::errc()) break;
      at = result.ptr;
    }
    for (size_t i = first; i <= last && i < limit && found.size() < kMostCurves; ++i)
      found.push_back(i);
    if (at < end && *at == ',')
      ++at;
    else
      break;
  }
  return found;
}

void flatten(const nlohmann::json& value, const std::string& name,
             std::map<std::string, std::string>& into) {
  if (value.is_object() && !value.empty()) {
    for (const auto& [key, inner] : value.items())
      flatten(inner, name.empty() ? key : name + "." + key, into);
    return;
  }
  into[name] = value.is_string() ? value.get<std::string>() : dump_json(value);
}

template <class T>
void append_bytes(std::string& body, const std::vector<T>& values) {
  body.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

void append_count(std::string& body, size_t count) {
  const auto value = uint32_t(count);
  body.append(reinterpret_cast<const char*>(&value), sizeof value);
}

nlohmann::json run_summary(const runs::CollectedRun& run) {
  const std::shared_lock lock(run.mutex);
  const auto& data = run.reader.data();
  nlohmann::json last = nlohmann::json::object();
  size_t points = 0;
  for (const auto& [key, series] : data.series) {
    points += series.size();
    if (!series.empty() && !key.starts_with("system/")) last[key] = number_or_null(series.last());
  }
  return {{"id", run.id},
          {"name", run.name},
          {"status", runs::status_name(run.status)},
          {"reason", data.end_reason},
          {"step", data.step},
          {"max_steps", data.max_steps},
          {"epoch", data.epoch},
          {"began", data.began},
          {"session_began", data.session_began},
          {"last_sign", data.last_sign},
          {"rate", data.steps_per_second()},
          {"parameters", data.parameters.value_or(0)},
          {"points", points},
          {"best", data.best_metric ? number_or_null(*data.best_metric) : nlohmann::json(nullptr)},
          {"best_checkpoint", data.best_checkpoint},
          {"last", last}};
}

nlohmann::json checkpoints_of(const fs::path& folder) {
  nlohmann::json found = nlohmann::json::array();
  try {
    for (const auto& each : list_checkpoints(folder)) {
      std::error_code unknown;
      int64_t bytes = 0;
      for (fs::directory_iterator entry(each.path, unknown), end; !unknown && entry != end;
           entry.increment(unknown)) {
        std::error_code none;
        if (entry->is_regular_file(none)) bytes += int64_t(entry->file_size(none));
      }
      found.push_back(
          {{"name", each.path.filename().string()}, {"step", each.step}, {"bytes", bytes}});
    }
  } catch (const Error&) {  // they cannot be listed for the moment
  }
  return found;
}

const char* kind_name(runs::SampleKind kind) {
  return kind == runs::SampleKind::image   ? "image"
         : kind == runs::SampleKind::audio ? "audio"
                                           : "table";
}

nlohmann::json trial_document(const search::FrozenTrial& trial) {
  const auto value = [](const std::optional<double>& number) {
    return number ? number_or_null(*number) : nlohmann::json(nullptr);
  };
  const auto step = trial.last_step();
  std::optional<double> newest;
  if (step) newest = trial.intermediate_values.at(*step);
  std::string state = search::state_name(trial.state);
  for (char& letter : state) letter = char(std::tolower(static_cast<unsigned char>(letter)));
  if (trial.state == search::TrialState::running && !search::is_under_way(trial)) state = "left";
  return {{"number", trial.number},
          {"state", state},
          {"value", value(trial.value)},
          {"step", step ? nlohmann::json(*step) : nlohmann::json(nullptr)},
          {"newest", value(newest)},
          {"params", trial.params()},
          {"run", nullptr}};
}

nlohmann::json study_document(const runs::FoundStudy& found, const fs::path& root,
                              const std::map<fs::path, size_t>& ids) {
  const auto& study = found.study;
  std::map<std::string, bool> is_log;  // by parameter
  auto trials = nlohmann::json::array();
  std::error_code unknown;
  const auto folder = fs::weakly_canonical(found.runs_folder(), unknown);
  for (const auto& trial : study.trials) {
    for (const auto& [name, distribution] : trial.distributions)
      is_log.emplace(name, distribution.log());
    trials.push_back(trial_document(trial));
    const auto run = ids.find(folder / fmt::format("run-{}", trial.number));
    if (run != ids.end()) trials.back()["run"] = run->second;
  }
  auto parameters = nlohmann::json::array();
  for (const auto& [name, each] : is_log) parameters.push_back({{"name", name}, {"log", each}});
  const auto best = study.best();
  return {{"name", study.name},
          {"file", found.file.lexically_relative(root).string()},
          {"metric", found.metric()},
          {"direction", study.direction == search::Direction::minimize ? "minimize" : "maximize"},
          {"parameters", parameters},
          {"trials", trials},
          {"best", best ? nlohmann::json(study.trials[*best].number) : nlohmann::json(nullptr)}};
}

HttpAnswer json_answer(const nlohmann::json& document) {
  return {.body = document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
}

}  // namespace

std::map<std::string, std::string> flat_settings(const nlohmann::json& settings) {
  std::map<std::string, std::string> found;
  if (settings.is_object() && !settings.empty()) flatten(settings, "", found);
  return found;
}

ServeApi::~ServeApi() {
  if (verifier_.joinable()) verifier_.join();
}

nlohmann::json ServeApi::overview(const runs::RunCollection& collection, uint64_t since) {
  const auto version = collection.version();
  nlohmann::json document = {{"version", version},
                             {"began", collection.began()},
                             {"root", collection.root().string()},
                             {"complete", collection.is_complete()},
                             {"studies", collection.studies_version()},
                             {"now", runs::clock_now()}};
  if (version == since) return document;
  const auto all = collection.runs();
  auto& changed = document["runs"] = nlohmann::json::array();
  std::set<std::string> keys;
  std::vector<std::map<std::string, std::string>> settings;
  for (const auto& run : all) {
    if (run->version > since) changed.push_back(run_summary(*run));
    const std::shared_lock lock(run->mutex);
    for (const auto& [key, series] : run->reader.data().series)
      if (!series.empty()) keys.insert(key);
    settings.push_back(flat_settings(run->reader.data().settings));
  }
  std::vector<std::string> sorted(keys.begin(), keys.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return runs::curve_rank(a) < runs::curve_rank(b);
  });
  document["keys"] = sorted;
  // Settings in which runs differ, one value a run.
  std::map<std::string, std::set<std::string>> values;
  for (const auto& each : settings)
    for (const auto& [name, value] : each) values[name].insert(value);
  auto& differing = document["settings"] = nlohmann::json::object();
  const auto has = [&](const auto& name) {
    return std::count_if(settings.begin(), settings.end(),
                         [&](const auto& each) { return each.contains(name); });
  };
  const auto with_settings = std::count_if(settings.begin(), settings.end(),
                                           [](const auto& each) { return !each.empty(); });
  for (const auto& [name, each] : values) {
    if (is_dull_setting(name) || (each.size() < 2 && has(name) == with_settings)) continue;
    auto& column = differing[name] = nlohmann::json::array();
    for (const auto& one : settings) {
      const auto found = one.find(name);
      column.push_back(found != one.end() ? nlohmann::json(found->second)
                                          : nlohmann::json(nullptr));
    }
  }
  return document;
}

nlohmann::json ServeApi::studies(const runs::RunCollection& collection) {
  std::map<fs::path, size_t> ids;  // of runs, by folder
  std::error_code unknown;
  for (const auto& run : collection.runs())
    ids[fs::weakly_canonical(run->reader.folder(), unknown)] = run->id;
  auto document = nlohmann::json::array();
  const auto found = collection.studies();
  for (const auto& each : *found) document.push_back(study_document(each, collection.root(), ids));
  return document;
}

nlohmann::json ServeApi::details(const runs::CollectedRun& run) {
  nlohmann::json document;
  fs::path folder;
  {
    const std::shared_lock lock(run.mutex);
    const auto& data = run.reader.data();
    folder = run.reader.folder();
    document = {{"id", run.id},
                {"name", run.name},
                {"folder", fs::absolute(folder).lexically_normal().string()},
                {"host", data.host},
                {"pid", data.process},
                {"settings", flat_settings(data.settings)},
                {"model", flat_settings(data.model)},
                {"best_checkpoint", data.best_checkpoint}};
    auto& lines = document["lines"] = nlohmann::json::array();
    for (const auto& message : data.messages)
      lines.push_back({{"time", message.time}, {"level", message.level}, {"text", message.text}});
  }
  document["checkpoints"] = checkpoints_of(folder);
  auto& samples = document["samples"] = nlohmann::json::array();
  for (const auto& file : runs::list_samples(folder))
    samples.push_back({{"name", file.name},
                       {"kind", kind_name(file.kind)},
                       {"time", file.time},
                       {"bytes", file.bytes}});
  return document;
}

std::shared_ptr<const runs::CollectedRun> ServeApi::run_of(const HttpRequest& request) const {
  const double id = number_in(request, "id", -1);
  return id >= 0 && id < 1e9 ? runs_.find(size_t(id)) : nullptr;
}

HttpAnswer ServeApi::answer(const HttpRequest& request) {
  const auto& path = request.path;
  if (path == "/api/runs")
    return json_answer(
        overview(runs_, uint64_t(std::clamp(number_in(request, "since", 0), 0.0, 0x1p53))));
  if (path == "/api/curves") return curves(request);
  if (path == "/api/studies") return json_answer(studies(runs_));
  if (path == "/api/samples") return samples(request);
  if (path == "/api/media") return media(request);
  if (path == "/api/verify") return verify(request);
  if (path == "/api/run")
    if (const auto run = run_of(request)) return json_answer(details(*run));
  return {.status = 404};
}

// Little-endian: the number of curves; of each its run, its points, how many values came before
// thinning; padding to 8 bytes; then x and y of each curve as float64.
HttpAnswer ServeApi::curves(const HttpRequest& request) const {
  const auto key = text_in(request, "key"), axis = text_in(request, "axis");
  runs::CurveQuery query{
      .axis = axis == "clock"     ? runs::Axis::clock
              : axis == "elapsed" ? runs::Axis::elapsed
                                  : runs::Axis::step,
      .from = number_in(request, "from", -1e300),
      .to = number_in(request, "to", 1e300),
      .points = size_t(std::clamp(number_in(request, "points", 2000), 8.0, 20000.0)),
      .smoothing = std::clamp(number_in(request, "smoothing", 0), 0.0, 0.9999)};
  const auto all = runs_.runs();
  std::string head, body;
  size_t count = 0;
  for (const auto id : listed(text_in(request, "runs"), all.size())) {
    const auto& run = *all[id];
    const std::shared_lock lock(run.mutex);
    const auto& data = run.reader.data();
    const auto* series = data.find(key);
    if (series == nullptr) continue;
    const auto curve = series->curve(query, data.began);
    append_count(head, id);
    append_count(head, curve.x.size());
    append_count(head, series->size());
    append_bytes(body, curve.x);
    append_bytes(body, curve.y);
    ++count;
  }
  std::string bytes;
  append_count(bytes, count);
  bytes += head;
  bytes.resize((bytes.size() + 7) / 8 * 8);
  return {.type = "application/octet-stream", .body = bytes + body};
}

HttpAnswer ServeApi::samples(const HttpRequest& request) const {
  const auto run = run_of(request);
  if (!run) return {.status = 404};
  const auto name = text_in(request, "file");
  const auto from = int64_t(std::clamp(number_in(request, "from", 0), 0.0, 1e9));
  const auto count = int64_t(std::clamp(number_in(request, "count", 50), 1.0, double(kMostRows)));
  for (const auto& file : runs::list_samples(run->reader.folder()))
    if (file.name == name && file.kind == runs::SampleKind::table)
      return json_answer(runs::read_samples(file, from, count));
  return {.status = 404};
}

HttpAnswer ServeApi::media(const HttpRequest& request) const {
  const auto run = run_of(request);
  if (!run) return {.status = 404};
  const auto name = text_in(request, "file");
  for (const auto& file : runs::list_samples(run->reader.folder())) {
    if (file.name != name || file.kind == runs::SampleKind::table) continue;
    if (file.bytes > kLargestMedia) return {.status = 413};
    return {.type = *runs::media_type(file.path), .body = read_file(file.path)};
  }
  return {.status = 404};
}

HttpAnswer ServeApi::verify(const HttpRequest& request) {
  const auto run = run_of(request);
  if (!run) return {.status = 404};
  const auto name = text_in(request, "checkpoint");
  fs::path path;
  for (const auto& each : list_checkpoints(run->reader.folder()))
    if (each.path.filename() == name) path = each.path;
  if (path.empty()) return {.status = 404};
  const bool again = text_in(request, "again") == "1";
  const std::scoped_lock lock(verify_mutex_);
  auto found = verified_.find(path.string());
  if (found != verified_.end() && found->second.is_done && !again)
    return json_answer(found->second.result);
  if (found != verified_.end() && !found->second.is_done)
    return json_answer({{"state", "running"}});
  if (verifying_) return json_answer({{"state", "waiting"}});  // one at a time
  if (verified_.size() > 10000) verified_.clear();
  verified_[path.string()] = {};
  verifying_ = true;
  if (verifier_.joinable()) verifier_.join();
  verifier_ = std::thread([this, path] {
    nlohmann::json result = {{"state", "done"}};
    try {
      const auto report = verify_checkpoint(path, Verify::full);
      result["complete"] = report.complete();
      result["problems"] = report.problems;
      result["files"] = report.files.size();
    } catch (const std::exception& error) {
      result["complete"] = false;
      result["problems"] = {error.what()};
    }
    const std::scoped_lock done(verify_mutex_);
    verified_[path.string()] = {true, result};
    verifying_ = false;
  });
  return json_answer({{"state", "running"}});
}

}  // namespace gradus::cli
