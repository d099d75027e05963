// A task of one's own, with flags: `own_task --degree 5 --max_steps 300`. The files it writes are
// those of every task.
#include <gradus/gradus.h>

#include <iostream>

#include "curve_fitting.h"

int main(int argc, char** argv) try {
  gradus::register_task("curve-fitting", [] { return std::make_unique<CurveFitting>(); });
  const auto task = gradus::make_task("curve-fitting");
  gradus::OptionSet options;
  task->add_options(options);
  task->arguments().set_common({.output_dir = "runs/curve",
                                .num_train_epochs = 60,
                                .learning_rate = 0.05,
                                .save_strategy = "no",
                                .do_train = true,
                                .do_eval = true,
                                .do_predict = true,
                                .overwrite_output_dir = true});
  task->arguments().add_to(options);
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (options.parse(words).help) return std::cout << options.help(), 0;
  task->arguments().resolve();
  const auto result = gradus::run_task(*task, task->arguments().common(), /*handle_signals=*/true);
  const auto rmse = result.metrics.at("eval").at("eval_rmse");
  std::cout << "rmse " << rmse << '\n';
  return rmse < 0.1 && std::filesystem::exists("runs/curve/curve.txt") ? 0 : 1;
} catch (const gradus::Error& error) {
  std::cerr << error.what() << '\n';
  return 2;
}
