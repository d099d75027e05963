#include <gradus/checkpoint/checkpoint_writer.h>
#include <gradus/checkpoint/manifest.h>
#include <gradus/checkpoint/staged_folder.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/log.h>
#include <signal.h>

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

void rotate(const CheckpointWriter::Job& job) {
  for (const auto& dir :
       job.rotation.to_delete(list_checkpoints(job.run_dir), job.best, job.step)) {
    log_info("Deleting older checkpoint " + dir.path.string() + " due to save_total_limit");
    remove_checkpoint(dir);
  }
}

// The side files are in `folder` already.
void write_checkpoint(const CheckpointWriter::Job& job, StagedFolder& folder) {
  const BlockFileSizeSignal no_signal;
  Manifest manifest;
  for (const auto& entry : fs::directory_iterator(folder.path()))
    manifest.files[entry.path().filename()] = file_checksum(entry.path());
  for (const auto& write : job.snapshot.files)
    for (auto& [name, written] : write(folder.path())) manifest.files[name] = written;
  write_file_atomically(folder.path() / "manifest.json", manifest.to_text());
  folder.publish();
  rotate(job);
}

}  // namespace

CheckpointWriter::~CheckpointWriter() {
  if (thread_.joinable()) thread_.join();
  if (!failure_) return;
  try {
    std::rethrow_exception(failure_);
  } catch (const std::exception& error) {
    log_error(error.what());
  } catch (...) {
    log_error("A checkpoint could not be saved.");
  }
}

void CheckpointWriter::start(Job job) {
  wait();
  make_directory(job.run_dir);
  StagedFolder folder(checkpoint_path(job.run_dir, job.step));
  {
    const BlockFileSizeSignal no_signal;
    for (const auto& write : job.snapshot.side_files) write(folder.path());
  }
  thread_ = std::thread([this, job = std::move(job), folder = std::move(folder)]() mutable {
    try {
      auto unfinished = std::move(folder);  // removed here when the write fails
      write_checkpoint(job, unfinished);
    } catch (...) {
      failure_ = std::current_exception();
    }
  });
}

void CheckpointWriter::wait() {
  if (thread_.joinable()) thread_.join();
  if (!failure_) return;
  const auto failure = std::exchange(failure_, nullptr);
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    throw Error("G-CKPT-6", ErrorKind::checkpoint,
                "a checkpoint could not be saved: " + error.message(),
                "Earlier checkpoints are unchanged. " + error.advice());
  } catch (const std::exception& error) {
    throw Error("G-CKPT-6", ErrorKind::checkpoint,
                std::string("a checkpoint could not be saved: ") + error.what(),
                "Earlier checkpoints are unchanged.");
  }
}

}  // namespace gradus
