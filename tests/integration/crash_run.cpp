// crash_run OUTPUT_DIR SAVE_STEPS [plain|fsize|once|readonly|slow]: trains dropout_run.h's run,
// going on from the newest complete checkpoint. resume_test.cpp kills it. `fsize` lets no file grow
// past 600 bytes once step 6 is saved, `once` only until step 10; `readonly` takes the right to
// write to OUTPUT_DIR away. `slow` makes evaluations take a second, says "evaluating" on stderr and
// stops when a signal arrives, with exit code 128 + signal. Exit code 3 and the message on stderr
// when gradus reports an error.
#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <iostream>

#include "../silent_log.h"
#include "dropout_run.h"

namespace {

void break_disk(const std::string& how, const std::string& folder) {
  if (how == "fsize" || how == "once") {
    const rlimit limit{600, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  } else if (how == "readonly") {
    ::chmod(folder.c_str(), 0555);
    if (::geteuid() == 0 && ::seteuid(65534) != 0) std::cerr << "seteuid failed\n";
  }
}

void mend_disk() {
  const rlimit limit{RLIM_INFINITY, RLIM_INFINITY};
  ::setrlimit(RLIMIT_FSIZE, &limit);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3) {
    std::cerr << "usage: crash_run OUTPUT_DIR SAVE_STEPS [plain|fsize|once|readonly|slow]\n";
    return 2;
  }
  gradus::set_log_sink(std::make_shared<gradus::testing::SilentLog>());
  const std::string folder = argv[1], how = argc > 3 ? argv[3] : "plain";
  auto args = gradus::testing::dropout_arguments(folder, std::stoll(argv[2]));
  if (how == "plain") args.save_total_limit = 3;
  gradus::Trainer trainer(gradus::testing::dropout_run(args));
  trainer.on(gradus::Event::step_begin,
             [&](const gradus::CallbackContext& at, gradus::TrainerControl&) {
               if (how == "once" && at.state.global_step == 10) {
                 try {
                   trainer.wait_for_saves();
                   std::cerr << "the save of step 9 did not fail\n";
                 } catch (const gradus::Error&) {
                 }
                 mend_disk();
               }
               if (at.state.global_step != 7) return;
               trainer.wait_for_saves();
               break_disk(how, folder);
             });
  const auto interrupt = std::make_shared<gradus::InterruptCallback>();
  if (how == "slow") {
    trainer.on(gradus::Event::prediction_step,
               [&](const gradus::CallbackContext&, gradus::TrainerControl&) {
                 std::cerr << "evaluating" << std::endl;
                 ::usleep(250'000);
               });
    trainer.add_callback(interrupt);
  }
  trainer.train(gradus::Resume::last());
  return interrupt->received() == 0 ? 0 : 128 + interrupt->received();
} catch (const gradus::Error& error) {
  std::cerr << error.what() << '\n';
  return 3;
}
