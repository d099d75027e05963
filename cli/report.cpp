// Runs as one file to send to somebody: a page, or a picture of the curves.
#include <fmt/format.h>
#include <gradus/config/option_set.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/log.h>
#include <gradus/core/nearest.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "cli.h"
#include "core/html.h"
#include "page_files.h"
#include "reference.h"
#include "runs/curve_picture.h"
#include "serve_api.h"

namespace gradus::cli {
namespace {

namespace fs = std::filesystem;

struct ReportFlags {
  std::optional<std::string> html = std::nullopt;
  std::optional<std::string> png = std::nullopt;
  std::optional<std::vector<std::string>> metrics = std::nullopt;
  int64_t points = 2000;
  double smoothing = 0;
};
constexpr OptionRow<ReportFlags> kReportRows[] = {
    {&ReportFlags::html, "html", Group::output, any_value(),
     "The page to write: one file with everything inside."},
    {&ReportFlags::png, "png", Group::output, any_value(), "The picture of the curves to write."},
    {&ReportFlags::metrics, "metrics", Group::output, any_value(),
     "The curves of the picture; unset: those that matter most."},
    {&ReportFlags::points, "points", Group::output, at_least(10),
     "Points of a curve at most. Where there are more, the smallest and the largest of each part "
     "stay."},
    {&ReportFlags::smoothing, "smoothing", Group::output, within_below(0, 1),
     "Weight of the past in a moving average in the picture; 0: none."},
};

constexpr const char* kReportUsage = "usage: gradus report DIR --html FILE | --png FILE [--flags]";
constexpr int64_t kMostSampleRows = 200;
constexpr int64_t kMostMediaBytes = int64_t(20) << 20;  // of all runs together
constexpr size_t kMostCharts = 6, kMostPictureRuns = 8;

/// JSON as it may stand in a <script> element.
std::string script_text(const nlohmann::json& document) {
  const auto text = document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  std::string safe;
  for (const char letter : text)
    safe += letter == '<' ? std::string("\\u003c") : std::string(1, letter);
  return safe;
}

nlohmann::json curve_json(const runs::Series& series, double began, size_t points) {
  const auto by_step = series.curve({.axis = runs::Axis::step, .points = points});
  const auto by_time = series.curve({.axis = runs::Axis::clock, .points = points});
  nlohmann::json values = nlohmann::json::array();
  for (const double y : by_step.y)
    values.push_back(std::isfinite(y) ? nlohmann::json(y) : nlohmann::json(nullptr));
  return {{"step", by_step.x},
          {"time", by_time.x},
          {"y", values},
          {"began", began},
          {"total", series.size()}};
}

nlohmann::json report_document(const runs::RunCollection& collection, const ReportFlags& flags) {
  nlohmann::json document = {
      {"overview", ServeApi::overview(collection, 0)}, {"studies", ServeApi::studies(collection)},
      {"details", nlohmann::json::object()},           {"curves", nlohmann::json::object()},
      {"samples", nlohmann::json::object()},           {"media", nlohmann::json::object()}};
  int64_t media_left = kMostMediaBytes;
  for (const auto& run : collection.runs()) {
    const auto id = std::to_string(run->id);
    document["details"][id] = ServeApi::details(*run);
    {
      const std::shared_lock lock(run->mutex);
      const auto& data = run->reader.data();
      for (const auto& [key, series] : data.series)
        if (!series.empty())
          document["curves"][key][id] = curve_json(series, data.began, size_t(flags.points));
    }
    for (const auto& file : runs::list_samples(run->reader.folder())) {
      const auto name = id + "/" + file.name;
      if (file.kind == runs::SampleKind::table) {
        if (document["samples"].size() < 200)
          document["samples"][name] = runs::read_samples(file, 0, kMostSampleRows);
      } else if (file.bytes < media_left) {
        media_left -= file.bytes;
        document["media"][name] = fmt::format("data:{};base64,{}", *runs::media_type(file.path),
                                              base64(read_file(file.path)));
      }
    }
  }
  return document;
}

std::string page_text(std::string_view name) {
  for (const auto& file : page_files())
    if (file.name == name) return std::string(file.content);
  return "";
}

/// The page with its scripts, styles and data in it. It may load nothing from anywhere.
std::string report_page(const nlohmann::json& document) {
  auto page = page_text("index.html");
  const auto replace = [&](const std::string& what, const std::string& by) {
    const auto at = page.find(what);
    if (at != std::string::npos) page.replace(at, what.size(), by);
  };
  replace("<meta charset=\"utf-8\">",
          "<meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" "
          "content=\"default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
          "img-src data:; media-src data:\">");
  for (const auto& file : page_files()) {
    const auto name = std::string(file.name);
    replace("<link rel=\"stylesheet\" href=\"" + name + "\">",
            "<style>" + std::string(file.content) + "</style>");
    const auto source = name == "source.js" ? "<script type=\"application/json\" id=\"report\">" +
                                                  script_text(document) + "</script>\n"
                                            : std::string();
    replace("<script src=\"" + name + "\"></script>",
            source + "<script>" + std::string(file.content) + "</script>");
  }
  return page;
}

bool has_finite_value(const runs::Curve& curve) {
  return std::any_of(curve.y.begin(), curve.y.end(), [](double y) { return std::isfinite(y); });
}

/// All metrics of the runs, those that matter most first.
std::vector<std::string> metrics_of(const runs::RunCollection& collection) {
  std::set<std::string> found;
  for (const auto& run : collection.runs()) {
    const std::shared_lock lock(run->mutex);
    for (const auto& [key, series] : run->reader.data().series)
      if (!series.empty()) found.insert(key);
  }
  std::vector<std::string> keys(found.begin(), found.end());
  std::stable_sort(keys.begin(), keys.end(), [](const auto& a, const auto& b) {
    return runs::curve_rank(a) < runs::curve_rank(b);
  });
  return keys;
}

std::vector<std::string> metrics_of_picture(const std::vector<std::string>& known,
                                            const ReportFlags& flags, const std::string& root) {
  if (flags.metrics) {
    for (const auto& key : *flags.metrics)
      if (std::find(known.begin(), known.end(), key) == known.end())
        throw Error(
            "G-CLI-5", ErrorKind::usage, "no run in " + root + " has the metric " + key,
            known.empty() ? "Wait for the first log entry of a run." : did_you_mean(key, known));
    return *flags.metrics;
  }
  std::vector<std::string> keys;
  for (const auto& key : known)
    if (runs::curve_rank(key) < 30 && key != "steps_per_second" && keys.size() < kMostCharts)
      keys.push_back(key);
  return keys;
}

/// The curves of the first runs that have any of them.
std::string picture_of(const runs::RunCollection& collection, const ReportFlags& flags,
                       const std::string& root) {
  const auto known = metrics_of(collection);
  std::vector<runs::PictureChart> charts;
  for (const auto& key : metrics_of_picture(known, flags, root)) charts.push_back({key, {}});
  size_t runs_with_curves = 0;
  for (const auto& run : collection.runs()) {
    std::vector<runs::Curve> curves;
    {
      const std::shared_lock lock(run->mutex);
      for (const auto& chart : charts) {
        const auto* series = run->reader.data().find(chart.title);
        curves.push_back(series != nullptr
                             ? series->curve({.points = 1000, .smoothing = flags.smoothing})
                             : runs::Curve());
      }
    }
    if (std::none_of(curves.begin(), curves.end(), has_finite_value)) continue;
    if (++runs_with_curves > kMostPictureRuns) continue;
    for (size_t i = 0; i < charts.size(); ++i)
      charts[i].curves.push_back({run->name, std::move(curves[i])});
  }
  if (runs_with_curves == 0)
    throw Error("G-CLI-5", ErrorKind::usage,
                root + (charts.empty() ? " has no curves yet" : " has no finite value to draw"),
                charts.empty() ? "Wait for the first log entry of a run."
                               : "Its values are NaN or infinite; --html shows them as a table.");
  if (runs_with_curves > kMostPictureRuns)
    log_warning(fmt::format("The picture shows the first {} of {} runs; --html shows all of them.",
                            kMostPictureRuns, runs_with_curves));
  return runs::curve_picture(std::move(charts));
}

/// Writes a file and prints its name, unless the content itself went to the output or a pipe.
void write_and_name(const std::string& file, const std::string& content) {
  if (write_named_file(file, content)) print_line(file);
}

}  // namespace

int report(Words words) {
  std::vector<std::string> rest(words.begin(), words.end());
  std::string root;
  if (!rest.empty() && !rest.front().starts_with("-")) {
    root = rest.front();
    rest.erase(rest.begin());
  }
  ReportFlags flags;
  OptionSet set;
  set.add(flags, std::span<const OptionRow<ReportFlags>>(kReportRows));
  if (set.parse(rest).help) {
    print_line(fmt::format(
        "{}\n\nThe page of `gradus serve` for the runs in DIR as one file that needs nothing else, "
        "or their curves as a picture.\n\n{}",
        kReportUsage, set.help()));
    return 0;
  }
  if (root.empty() || (!flags.html && !flags.png))
    throw Error("G-CLI-4", ErrorKind::usage,
                root.empty() ? "gradus report takes a folder, received none"
                             : "gradus report needs --html or --png",
                kReportUsage);
  set.check();
  if (!fs::is_directory(root))
    throw Error("G-CLI-5", ErrorKind::usage, root + ": there is no such folder",
                "Name a run folder, or one that holds runs.");
  if (flags.html && page_files().empty())
    throw Error("G-SERVE-1", ErrorKind::usage,
                "this gradus was built without its page: the plotting library uPlot was not there",
                "Run tools/setup where npm is installed and build again. --png needs neither.");
  const runs::RunCollection collection(root);
  while (!collection.is_complete()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  if (collection.runs().empty())
    throw Error("G-CLI-5", ErrorKind::usage, root + " holds no runs",
                "Name a folder that training wrote.");
  if (flags.html) write_and_name(*flags.html, report_page(report_document(collection, flags)));
  if (flags.png) write_and_name(*flags.png, picture_of(collection, flags, root));
  return 0;
}

std::vector<Flag> report_flags() { return flags_of(kReportRows); }

}  // namespace gradus::cli
