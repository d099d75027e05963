#include <gradus/checkpoint/checkpoint_writer.h>
#include <gradus/checkpoint/manifest.h>
#include <gradus/checkpoint/staged_folder.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/log.h>
#include <signal.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "core/list_folder.h"

namespace gradus {
namespace fs = std::filesystem;
namespace {

// A file-size limit raises SIGXFSZ, which would end the process. Blocked, the write fails with
// EFBIG instead.
class BlockFileSizeSignal {
 public:
  BlockFileSizeSignal() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &set, &before_);
  }
  ~BlockFileSizeSignal() {
    // One that is pending for this thread is taken out before it could act.
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    const timespec now{};
    while (sigtimedwait(&set, nullptr, &now) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BlockFileSizeSignal(const BlockFileSizeSignal&) = delete;
  BlockFileSizeSignal& operator=(const BlockFileSizeSignal&) = delete;

 private:
  sigset_t before_;
};

// The new checkpoint is there whatever happens here.
void rotate(const CheckpointWriter::Job& job) try {
  for (const auto& dir :
       job.rotation.to_delete(list_checkpoints(job.run_dir), job.best, job.step)) {
    log_info("Deleting older checkpoint " + dir.path.string() + " due to save_total_limit");
    remove_checkpoint(dir);
  }
} catch (const Error& error) {
  log_warning("Older checkpoints are kept for now: " + error.message());
}

// What this process has for a checkpoint of another one.
void write_into(const CheckpointWriter::Job& job) {
  const BlockFileSizeSignal no_signal;
  for (const auto& write : job.snapshot.files) write(job.into);
}

// The side files are in `folder` already.
void write_checkpoint(const CheckpointWriter::Job& job, StagedFolder& folder) {
  const BlockFileSizeSignal no_signal;
  Manifest manifest;
  const auto& others = job.snapshot.others;
  for (const auto& path : list_folder(folder.path()))
    if (others.empty() || path.filename().string().find(others) == std::string::npos)
      manifest.files[path.filename()] = file_checksum(path);
  for (const auto& write : job.snapshot.files)
    for (auto& [name, written] : write(folder.path())) manifest.files[name] = written;
  write_file_atomically(folder.path() / "manifest.json", manifest.to_text());
  folder.publish();
  rotate(job);
}

constexpr std::string_view kNotSaved = "a checkpoint could not be saved: ";

// What a save failed with, as one error.
Error save_error(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  return {"G-CKPT-6", ErrorKind::checkpoint,
          std::string(kNotSaved) + (known ? known->message() : error.what()),
          "Earlier checkpoints are unchanged." + (known ? " " + known->advice() : "")};
}

void warn_of_failed_save(const CheckpointWriter::Job& job, const Error& error) {
  auto line = checkpoint_path(job.run_dir, job.step).string() +
              " could not be saved: " + error.message().substr(kNotSaved.size()) + " [" +
              error.id() + "]. " + error.advice() +
              (job.if_it_fails.empty() ? "" : " " + job.if_it_fails);
  std::replace(line.begin(), line.end(), '\n', ' ');
  log_warning(line);
}

}  // namespace

CheckpointWriter::~CheckpointWriter() {
  if (thread_.joinable()) thread_.join();
}

// Does a part of a job and notes what it failed with.
void CheckpointWriter::attempt(const Job& job, const std::function<void()>& work) {
  std::optional<Error> failure;
  try {
    work();
  } catch (const std::exception& error) {
    failure = save_error(error);
  } catch (...) {
    failure = save_error(std::runtime_error("an exception that is not a std::exception"));
  }
  if (!failure) return;
  warn_of_failed_save(job, *failure);
  outcome_ = Outcome{job.step, std::move(failure)};
}

void CheckpointWriter::start(Job given) {
  wait();
  outcome_.reset();
  const auto job = std::make_shared<const Job>(std::move(given));
  attempt(*job, [&] {
    auto folder = job->folder;
    if (!folder && job->into.empty()) {
      make_directory(job->run_dir);
      folder = std::make_shared<StagedFolder>(checkpoint_path(job->run_dir, job->step));
    }
    if (folder) {
      const BlockFileSizeSignal no_signal;
      for (const auto& write : job->snapshot.side_files) write(folder->path());
    }
    has_ended_ = false;
    try {
      thread_ = std::thread([this, job, folder = std::move(folder)]() mutable {
        attempt(*job, [&] {
          const auto unfinished = std::move(folder);  // removed when the write fails
          if (unfinished)
            write_checkpoint(*job, *unfinished);
          else
            write_into(*job);
        });
        if (!outcome_) outcome_ = Outcome{job->step};
        has_ended_ = true;
      });
    } catch (...) {
      has_ended_ = true;
      throw;
    }
  });
}

std::optional<CheckpointWriter::Outcome> CheckpointWriter::take_outcome() {
  return has_ended_ ? wait_for_outcome() : std::nullopt;
}

std::optional<CheckpointWriter::Outcome> CheckpointWriter::wait_for_outcome() {
  if (thread_.joinable()) thread_.join();
  return std::exchange(outcome_, std::nullopt);
}

void CheckpointWriter::wait() {
  if (const auto outcome = wait_for_outcome(); outcome && outcome->failure)
    throw Error(*outcome->failure);
}

}  // namespace gradus
