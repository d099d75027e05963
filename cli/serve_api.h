#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "http_server.h"
#include "runs/run_collection.h"
#include "runs/samples.h"

namespace gradus::cli {

/// What the page of `gradus serve` asks for, from the files of runs.
///
///     /api/runs?since=V      what has changed since version V: runs, metrics, differing settings
///     /api/curves?key=loss&runs=0-9,12&axis=step&from=&to=&points=2000&smoothing=0.6
///     /api/studies           the studies of searches with all their trials
///     /api/run?id=3          settings, model, last lines, checkpoints and samples of a run
///     /api/samples?id=3&file=NAME&from=0&count=50
///     /api/media?id=3&file=NAME     an image or a sound
///     /api/verify?id=3&checkpoint=checkpoint-500    starts the check, then tells how it stands
///
/// Files are named only as `list_samples` and `list_checkpoints` name them, so that no request
/// reaches another file. Nothing is written. Thread-safe.
class ServeApi {
 public:
  explicit ServeApi(const runs::RunCollection& runs) : runs_(runs) {}
  ~ServeApi();

  /// The answer; status 404 for what there is not, 400 for what is not understood.
  HttpAnswer answer(const HttpRequest& request);

  /// The document of /api/runs with all that changed after version `since`. `gradus report` embeds
  /// it, too.
  static nlohmann::json overview(const runs::RunCollection& runs, uint64_t since);
  /// The document of /api/studies.
  static nlohmann::json studies(const runs::RunCollection& runs);
  /// The document of /api/run.
  static nlohmann::json details(const runs::CollectedRun& run);

 private:
  struct Verification {
    bool is_done = false;
    nlohmann::json result;
  };

  HttpAnswer curves(const HttpRequest& request) const;
  HttpAnswer samples(const HttpRequest& request) const;
  HttpAnswer media(const HttpRequest& request) const;
  HttpAnswer verify(const HttpRequest& request);
  std::shared_ptr<const runs::CollectedRun> run_of(const HttpRequest& request) const;

  const runs::RunCollection& runs_;
  std::mutex verify_mutex_;
  std::map<std::string, Verification> verified_;  // by path
  std::thread verifier_;
  bool verifying_ = false;
};

/// The settings of a run with nested ones as "a.b", as short texts.
std::map<std::string, std::string> flat_settings(const nlohmann::json& settings);

}  // namespace gradus::cli
