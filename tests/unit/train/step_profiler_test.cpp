// --profile_steps: the file exists after its last step and holds operations of these steps only.
#include <gradus/core/json.h>

#include "regression.h"

namespace gradus::testing {
namespace {

int64_t events_named(const json& trace, const std::string& name) {
  int64_t found = 0;
  for (const auto& event : trace.at("traceEvents")) found += event.value("name", "") == name;
  return found;
}

TEST(StepProfiler, WritesTheOperationsOfItsSteps) {
  Box box;
  Trainer trainer(regression(box, {.max_steps = 5, .save_strategy = "no", .profile_steps = "2:3"}));
  const auto file = fs::path(*trainer.args().output_dir) / "profile-2-3.json";
  std::vector<bool> exists;
  trainer.on(Event::step_end,
             [&](const CallbackContext&, TrainerControl&) { exists.push_back(fs::exists(file)); });
  trainer.train();
  EXPECT_EQ(exists, (std::vector<bool>{false, false, true, true, true}));
  const auto trace = read_json(file);
  EXPECT_EQ(events_named(trace, "aten::mse_loss"), 2);
}

TEST(StepProfiler, ARunThatEndsEarlyLeavesWhatItHas) {
  Box box;
  Trainer trainer(regression(box, {.max_steps = 3, .save_strategy = "no", .profile_steps = "2:9"}));
  trainer.train();
  EXPECT_EQ(events_named(read_json(fs::path(*trainer.args().output_dir) / "profile-2-9.json"),
                         "aten::mse_loss"),
            2);
}

TEST(StepProfiler, ARunThatEndsBeforeItsStepsSaysSo) {
  Box box;
  Trainer(regression(box, {.max_steps = 3, .save_strategy = "no", .profile_steps = "7:9"})).train();
  EXPECT_EQ(box->heard("profile_steps: the run ended at step 3, before step 7."), 1);
}

}  // namespace
}  // namespace gradus::testing
