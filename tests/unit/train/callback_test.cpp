// Callbacks: peer-tests.md 120–135 and the just-in-time checkpoint (55–68).
#include <gradus/core/json.h>
#include <gradus/trackers/tracker.h>
#include <gradus/train/plan.h>
#include <signal.h>

#include "../../event_recorder.h"
#include "regression.h"

namespace gradus::testing {
namespace {

Names names_of(const Trainer& trainer) {
  Names names;
  for (const auto& callback : trainer.callbacks()) names.push_back(callback->name());
  return names;
}

// The peer's get_expected_events, with the evaluation that ends a run of strategy steps.
Names expected_events(const TrainingArguments& args, int64_t steps_per_epoch,
                      int64_t eval_batches) {
  Names events = {"on_init_end", "on_train_begin"};
  const int64_t epochs = int64_t(args.num_train_epochs), last = epochs * steps_per_epoch;
  const auto evaluate = [&] {
    for (int64_t i = 0; i < eval_batches; ++i) events.emplace_back("on_prediction_step");
    events.insert(events.end(), {"on_log", "on_evaluate"});
  };
  int64_t step = 0;
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    events.push_back("on_epoch_begin");
    for (int64_t i = 0; i < steps_per_epoch; ++i) {
      ++step;
      events.insert(events.end(),
                    {"on_step_begin", "on_pre_optimizer_step", "on_optimizer_step", "on_step_end"});
      if (step % args.logging_steps.steps(last) == 0) events.push_back("on_log");
      if (args.eval_strategy == "steps" &&
          (step % args.eval_steps->steps(last) == 0 || step == last))
        evaluate();
      if (step % args.save_steps.steps(last) == 0 || step == last) events.push_back("on_save");
    }
    events.push_back("on_epoch_end");
    if (args.eval_strategy == "epoch") evaluate();
  }
  events.insert(events.end(), {"on_log", "on_train_end"});
  return events;
}

TEST(Callbacks, TestInitCallback) {
  Box box;
  auto options = regression(box);
  EXPECT_EQ(names_of(Trainer(std::move(options))),
            (Names{"DefaultFlowCallback", "PrinterCallback"}));
  options = regression(box);
  options.args.disable_tqdm = false;
  options.callbacks = {std::make_shared<EventRecorder>()};
  EXPECT_EQ(names_of(Trainer(std::move(options))),
            (Names{"DefaultFlowCallback", "EventRecorder", "ProgressCallback"}))
      << "the user's before the progress bar";
}

TEST(Callbacks, TestAddRemoveCallback) {
  Box box;
  Trainer trainer(regression(box));
  const auto mine = std::make_shared<EventRecorder>();
  trainer.add_callback(mine);
  EXPECT_EQ(names_of(trainer), (Names{"DefaultFlowCallback", "PrinterCallback", "EventRecorder"}));
  EXPECT_EQ(trainer.pop_callback("EventRecorder"), mine);
  EXPECT_EQ(trainer.pop_callback("EventRecorder"), nullptr);
  EXPECT_EQ(trainer.pop_callback<EarlyStoppingCallback>(), nullptr);
  EXPECT_FALSE(trainer.remove_callback(mine));
  EXPECT_NE(trainer.pop_callback<DefaultFlowCallback>(), nullptr);
  trainer.add_callback(mine);
  EXPECT_TRUE(trainer.remove_callback(mine));
  EXPECT_EQ(names_of(trainer), Names{"PrinterCallback"});
  EXPECT_EQ(error_of([&] { trainer.add_callback(nullptr); }).id(), "G-TRAIN-9");
}

TEST(Callbacks, TestAddCallbackTwiceWarns) {
  Box box;
  Trainer trainer(regression(box));
  trainer.add_callback(std::make_shared<EventRecorder>());
  EXPECT_EQ(box->heard("A callback of type EventRecorder was already added"), 0);
  trainer.add_callback(std::make_shared<EventRecorder>());
  EXPECT_EQ(box->heard("A callback of type EventRecorder was already added"), 1);
}

TEST(Callbacks, TestEventFlow) {
  const std::vector<TrainingArguments> configurations = {
      {},
      {.logging_steps = 5},
      {.save_steps = 5},
      {.eval_strategy = "steps", .eval_steps = 5},
      {.eval_strategy = "epoch"},
      {.logging_steps = 3, .eval_strategy = "steps", .eval_steps = 5, .save_steps = 10},
  };
  for (size_t i = 0; i < configurations.size(); ++i) {
    Box box;
    auto options = regression(box, configurations[i]);
    const auto recorder = std::make_shared<EventRecorder>();
    options.callbacks = {recorder};
    Trainer(std::move(options)).train();
    EXPECT_EQ(recorder->events, expected_events(configurations[i], 8, 8)) << "configuration " << i;
  }
}

TEST(Callbacks, TestEventFlowWithAccumulation) {
  Box box;
  auto options =
      regression(box, {.max_steps = 1, .gradient_accumulation_steps = 3, .save_strategy = "no"});
  const auto recorder = std::make_shared<EventRecorder>();
  options.callbacks = {recorder};
  Trainer trainer(std::move(options));
  trainer.train();
  EXPECT_EQ(recorder->events,
            (Names{"on_init_end", "on_train_begin", "on_epoch_begin", "on_step_begin",
                   "on_substep_end", "on_substep_end", "on_pre_optimizer_step", "on_optimizer_step",
                   "on_step_end", "on_epoch_end", "on_log", "on_train_end"}));
  recorder->events.clear();
  trainer.predict(RegressionData(16).rows);
  EXPECT_EQ(recorder->events, (Names{"on_prediction_step", "on_prediction_step", "on_predict"}))
      << "predict does not log";
}

TEST(Callbacks, TestNoDuplicateSaveOnEpochStrategy) {
  Box box;
  auto options = regression(box, {.max_steps = 2, .save_strategy = "epoch"});
  const auto recorder = std::make_shared<EventRecorder>();
  options.callbacks = {recorder};
  Trainer(std::move(options)).train();
  EXPECT_EQ(std::count(recorder->events.begin(), recorder->events.end(), "on_save"), 1);
}

TEST(Callbacks, TestCallbackCanStopTraining) {
  for (const Event event :
       {Event::step_end, Event::step_begin, Event::epoch_begin, Event::train_begin}) {
    Box box;
    Trainer trainer(regression(box, {.max_steps = 10}));
    trainer.on(event, [](const CallbackContext&, TrainerControl& control) {
      control.should_training_stop = true;
    });
    EXPECT_EQ(trainer.train().global_step, 1)
        << event_name(event) << ": a stop is looked at after a step, as in transformers";
  }
}

TEST(Callbacks, TestShouldEpochStopGoesOnWithTheNextPass) {
  Box box;
  Trainer trainer(regression(box, {.num_train_epochs = 2, .save_strategy = "no"}));
  trainer.on(Event::step_end, [](const CallbackContext& at, TrainerControl& control) {
    control.should_epoch_stop = at.state.global_step == 3;
  });
  EXPECT_EQ(trainer.train().global_step, 3 + 8);
}

TEST(Callbacks, TestControlFlagsPerStep) {
  Box box;
  auto options = regression(box, {.max_steps = 4,
                                  .logging_steps = 2,
                                  .eval_strategy = "steps",
                                  .eval_steps = 3,
                                  .save_steps = 4});
  const auto recorder = std::make_shared<EventRecorder>();
  options.callbacks = {recorder};
  Trainer(std::move(options)).train();
  std::vector<std::array<bool, 4>> at_step_end;
  for (size_t i = 0; i < recorder->events.size(); ++i) {
    const auto& control = recorder->controls[i];
    if (recorder->events[i] == "on_step_end")
      at_step_end.push_back({control.should_log, control.should_evaluate, control.should_save,
                             control.should_training_stop});
    if (recorder->events[i] == "on_step_begin") {
      EXPECT_FALSE(control.should_log || control.should_evaluate || control.should_save);
    }
    if (recorder->events[i] == "on_save") {
      EXPECT_FALSE(control.should_save) << "cleared before the callbacks run";
    }
  }
  const std::vector<std::array<bool, 4>> expected = {{false, false, false, false},
                                                     {true, false, false, false},
                                                     {false, true, false, false},
                                                     {true, true, true, true}};
  EXPECT_EQ(at_step_end, expected);
}

TEST(Callbacks, TestStatefulCallbacks) {
  Box box;
  const TrainingArguments args{.max_steps = 2,
                               .eval_strategy = "steps",
                               .eval_steps = 1,
                               .save_steps = 1,
                               .metric_for_best_model = "loss",
                               .greater_is_better = true};
  auto options = regression(box, args);
  options.callbacks = {std::make_shared<EarlyStoppingCallback>(5, 0.2)};
  Trainer(std::move(options)).train();
  for (const bool restore : {false, true}) {
    auto again = regression(box, args);
    again.args.max_steps = 3;
    again.args.restore_callback_states_from_checkpoint = restore;
    const auto callback = std::make_shared<EarlyStoppingCallback>(7, 0.3);
    again.callbacks = {callback};
    Trainer(std::move(again)).train(Resume::from(box.run() / "checkpoint-2"));
    EXPECT_EQ(callback->patience(), restore ? 5 : 7)
        << "what it was made with comes back only when asked for";
    EXPECT_EQ(callback->threshold(), restore ? 0.2 : 0.3);
    EXPECT_EQ(callback->patience_counter(), 2)
        << "losses fall, greater would be better; its count goes on in any case";
  }
}

struct Named : TrainerCallback {
  explicit Named(std::string value) : value(std::move(value)) {}
  std::string name() const override { return "Named"; }
  json state_dict() const override {
    return {{"args", {{"value", value}}}, {"attributes", {{"seen", seen}}}};
  }
  void load_state_dict(const json& state) override {
    value = state.at("args").value("value", value), state.at("attributes").at("seen").get_to(seen);
  }
  bool is_exportable() const override { return true; }
  void on_step_end(const TrainingArguments&, TrainerState&, TrainerControl&,
                   const CallbackContext&) override {
    ++seen;
  }
  std::string value;
  int seen = 0;
};

TEST(Callbacks, TestStatefulMixedCallbacks) {
  Box box;
  auto options = regression(box, {.max_steps = 2});
  options.callbacks = {std::make_shared<Named>("first"), std::make_shared<Named>("second")};
  Trainer(std::move(options)).train();
  const auto stored =
      read_json(box.run() / "checkpoint-2/trainer_state.json").at("stateful_callbacks").at("Named");
  ASSERT_EQ(stored.size(), 2U);
  EXPECT_EQ(stored[1].at("args").at("value"), "second");
  auto again = regression(box, {.max_steps = 3, .restore_callback_states_from_checkpoint = true});
  const auto first = std::make_shared<Named>("x"), second = std::make_shared<Named>("y");
  again.callbacks = {first, second};
  Trainer(std::move(again)).train(Resume::last());
  EXPECT_EQ(first->value, "first");
  EXPECT_EQ(second->value, "second");
  EXPECT_EQ(second->seen, 3);
}

TEST(Callbacks, TestMissingStatefulCallback) {
  Box box;
  auto options = regression(box, {.max_steps = 2});
  options.callbacks = {std::make_shared<Named>("gone")};
  Trainer(std::move(options)).train();
  Trainer(regression(box, {.max_steps = 3})).train(Resume::last());
  EXPECT_EQ(box->heard("states of callbacks that this run does not have; they are ignored: Named"),
            1);
}

TEST(Callbacks, TestTrainerControlState) {
  TrainerControl control{.should_training_stop = true,
                         .should_epoch_stop = true,
                         .should_save = true,
                         .should_evaluate = true,
                         .should_log = true};
  const auto exported = control.state();
  EXPECT_EQ(exported.at("args").size(), 5U);
  EXPECT_EQ(exported.at("attributes"), json::object());
  const auto back = TrainerControl::from_state(exported);
  EXPECT_TRUE(back.should_training_stop && back.should_epoch_stop && back.should_save &&
              back.should_evaluate && back.should_log);
  control.new_step();
  EXPECT_FALSE(control.should_save || control.should_evaluate || control.should_log);
  EXPECT_TRUE(control.should_training_stop && control.should_epoch_stop);
  control.new_epoch();
  control.new_training();
  EXPECT_FALSE(control.should_training_stop || control.should_epoch_stop);

  Box box;  // TestTrainerControlStatePersists: the last checkpoint says that the run was to stop
  Trainer(regression(box, {.max_steps = 2})).train();
  EXPECT_EQ(read_json(box.run() / "checkpoint-2/trainer_state.json")
                .at("stateful_callbacks")
                .at("TrainerControl")
                .at("args")
                .at("should_training_stop"),
            true);
}

TEST(Callbacks, AStateHoldsLogEntriesOnly) {
  for (const char* entry : {"5", "[1]", "null", R"({"step": "x", "loss": 1})", R"({"step": null})"})
    try {
      TrainerState::from_json(parse_json("{\"log_history\": [" + std::string(entry) + "]}"));
      ADD_FAILURE() << entry << " was taken for a log entry";
    } catch (const Error& error) {
      EXPECT_EQ(error.id(), "G-CKPT-4") << entry;
    }
  const auto good = parse_json(R"({"log_history": [{"loss": 1.0}]})");
  EXPECT_EQ(TrainerState::from_json(good).log_history.size(), 1u);
}

TEST(Callbacks, TestTrainerStateJson) {
  TrainerState state;
  EXPECT_TRUE(state.log_history.empty());
  EXPECT_EQ(state.stateful_callbacks, json::object());
  state.epoch = 1.5;
  state.global_step = 12;
  state.best_metric = 0.25;
  state.log_history = {log_entry({{"loss", NAN}, {"num_input_tokens_seen", 8}}, 12)};
  const auto text = state.to_text();
  EXPECT_EQ(text.substr(0, 28), "{\n  \"best_global_step\": null");
  EXPECT_EQ(text.back(), '\n');
  EXPECT_NE(text.find("\"loss\": NaN"), std::string::npos) << "as Python writes it";
  EXPECT_NE(text.find("\"num_input_tokens_seen\": 8,"), std::string::npos);
  Box box;
  state.save_to_json(box.run("state.json"));
  EXPECT_EQ(TrainerState::load_from_json(box.run("state.json")).to_text(), text);
  EXPECT_EQ(TrainerState().to_json().size(), 20U);
  auto odd = TrainerState().to_json();
  odd["extra"] = 1;
  EXPECT_EQ(error_of([&] { TrainerState::from_json(odd); }).message(),
            "trainer_state.json has an unknown key 'extra'");
  odd.erase("extra");
  odd["global_step"] = "three";
  EXPECT_EQ(error_of([&] { TrainerState::from_json(odd); }).id(), "G-CKPT-4");
}

TEST(Callbacks, TestComputeSteps) {
  TrainerState state;
  state.compute_steps({.logging_steps = 0.1, .eval_steps = 0.2, .save_steps = 0.5}, 100);
  EXPECT_EQ(std::tuple(state.logging_steps, state.eval_steps, state.save_steps),
            std::tuple(10, 20, 50));
  state.compute_steps({.logging_steps = 7, .eval_steps = 8, .save_steps = 9}, 100);
  EXPECT_EQ(std::tuple(state.logging_steps, state.eval_steps, state.save_steps),
            std::tuple(7, 8, 9));
}

TEST(Callbacks, TestContextHasTheParts) {
  Box box;
  Trainer trainer(regression(box, {.max_steps = 1}));
  bool seen = false;
  trainer.on(Event::step_end, [&](const CallbackContext& at, TrainerControl&) {
    seen = at.model == &trainer.model() && at.optimizer == trainer.optimizer().get() &&
           at.lr_scheduler == trainer.lr_scheduler().get() && at.train_dataloader != nullptr &&
           at.state.global_step == 1;
  });
  trainer.train();
  EXPECT_TRUE(seen);
  EXPECT_EQ(error_of([] { every(0); }).message(), "every(0): expected a count of at least 1");
}

TEST(Callbacks, TestOnEvery) {
  Box box;
  Trainer trainer(regression(box, {.max_steps = 10, .logging_steps = 1}));
  std::vector<int64_t> steps, logs;
  trainer.on(Event::step_end, every(4), [&](const CallbackContext& at, TrainerControl&) {
    steps.push_back(at.state.global_step);
  });
  trainer.on(Event::log, every(3), [&](const CallbackContext& at, TrainerControl&) {
    logs.push_back(at.state.global_step);
  });
  trainer.train();
  EXPECT_EQ(steps, (std::vector<int64_t>{4, 8}));
  EXPECT_EQ(logs, (std::vector<int64_t>{3, 6, 9}));
}

TEST(Callbacks, TestEarlyStoppingCallback) {
  const TrainingArguments args{.per_device_train_batch_size = 16,
                               .num_train_epochs = 20,
                               .learning_rate = 0.1,
                               .eval_strategy = "epoch",
                               .save_strategy = "epoch",
                               .load_best_model_at_end = true,
                               .metric_for_best_model = "accuracy",
                               .greater_is_better = true};
  for (const bool load_best : {true, false}) {
    Box box;
    auto options = regression(box, args);
    options.args.load_best_model_at_end = load_best;
    options.compute_metrics = almost_accuracy;
    options.callbacks = {std::make_shared<EarlyStoppingCallback>(1, 0.0001)};
    Trainer trainer(std::move(options));
    EXPECT_LT(trainer.train().global_step, 20 * 64 / 16);
    EXPECT_TRUE(trainer.state().best_model_checkpoint);
    EXPECT_EQ(box->heard("the best model will not be loaded at the end"), load_best ? 0 : 1);
  }
}

TEST(Callbacks, TestEarlyStoppingNeedsEvaluations) {
  Box box;
  auto options = regression(box, {.metric_for_best_model = "loss"});
  options.callbacks = {std::make_shared<EarlyStoppingCallback>()};
  Trainer trainer(std::move(options));
  const auto error = error_of([&] { trainer.train(); });
  EXPECT_EQ(error.message(), "EarlyStoppingCallback needs evaluations, but eval_strategy is 'no'");
  EXPECT_EQ(trainer.state().global_step, 0);
  auto unnamed = regression(box, {.eval_strategy = "epoch"});
  unnamed.callbacks = {std::make_shared<EarlyStoppingCallback>()};
  EXPECT_EQ(error_of([&] { Trainer(std::move(unnamed)).train(); }).message(),
            "EarlyStoppingCallback needs metric_for_best_model, which is not set");
}

TEST(Callbacks, TestEarlyStoppingWithoutItsMetricIsSwitchedOff) {
  Box box;
  auto options = regression(
      box,
      {.max_steps = 3, .eval_strategy = "steps", .eval_steps = 1, .metric_for_best_model = "loss"});
  options.eval_dataset = EvalDatasets{{"one", RegressionData().rows}, {"", RegressionData().rows}};
  const auto callback = std::make_shared<EarlyStoppingCallback>(1);
  options.callbacks = {callback};
  Trainer trainer(std::move(options));
  EXPECT_THROW(trainer.train(), Error) << "eval_loss is not among eval_one_loss and eval__loss";
  EXPECT_GE(box->heard("Early stopping uses eval_loss, which this evaluation did not return"), 1);
}

TEST(Callbacks, TestJitCheckpoint) {
  Box box;
  auto options = regression(box, {.max_steps = 20, .save_strategy = "no"});
  const auto jit = std::make_shared<JITCheckpointCallback>(/*kill_wait_seconds=*/0);
  options.callbacks = {jit};
  Trainer trainer(std::move(options));
  trainer.on(Event::step_begin, [&](const CallbackContext& at, TrainerControl&) {
    if (at.state.global_step == 6) ::raise(SIGTERM);
  });
  const auto result = trainer.train();
  EXPECT_EQ(result.global_step, 7) << "the step under way ends, is saved, and nothing follows";
  EXPECT_EQ(jit->received(), SIGTERM);
  EXPECT_EQ(steps_saved(box.run()), std::vector<int64_t>{7});
  EXPECT_FALSE(fs::exists(box.run() / "checkpoint-7/checkpoint-is-incomplete.txt"));

  Trainer whole(
      regression(box, {.output_dir = box.dir("whole"), .max_steps = 20, .save_strategy = "no"}));
  whole.train();
  Trainer resumed(regression(box, {.max_steps = 20, .save_strategy = "no"}));
  EXPECT_EQ(resumed.train(Resume::last()).global_step, 20);
  EXPECT_EQ(weights(resumed), weights(whole));
}

TEST(Callbacks, TestJitWaitsForTheGracePeriod) {
  Box box;
  auto options = regression(box, {.max_steps = 5, .save_strategy = "no"});
  const auto jit = std::make_shared<JITCheckpointCallback>(/*kill_wait_seconds=*/3600);
  options.callbacks = {jit};
  Trainer trainer(std::move(options));
  trainer.on(Event::train_begin, [](const CallbackContext&, TrainerControl&) { ::raise(SIGTERM); });
  EXPECT_EQ(trainer.train().global_step, 5) << "SIGTERM alone does not stop at once";
  EXPECT_EQ(jit->received(), 0);
  EXPECT_EQ(steps_saved(box.run()), std::vector<int64_t>{});
}

TEST(Callbacks, TestJitIsAddedOnceWhenEnabled) {
  Box box;
  Trainer trainer(regression(box, {.enable_jit_checkpoint = true}));
  const auto names = names_of(trainer);
  EXPECT_EQ(std::count(names.begin(), names.end(), "JITCheckpointCallback"), 1);
  EXPECT_EQ(names[1], "JITCheckpointCallback") << "after the flow, before the user's";
}

TEST(Callbacks, HandlersComeBackAfterAnException) {
  struct sigaction before{}, after{};
  sigaction(SIGTERM, nullptr, &before);
  Box box;
  auto options = regression(box, {.max_steps = 5, .enable_jit_checkpoint = true});
  Trainer trainer(std::move(options));
  std::string reason;
  trainer.on(Event::step_end, [](const CallbackContext&, TrainerControl&) {
    throw std::runtime_error("a callback failed");
  });
  trainer.on(Event::train_end,
             [&](const CallbackContext& at, TrainerControl&) { reason = at.exception; });
  EXPECT_THROW(trainer.train(), std::runtime_error);
  sigaction(SIGTERM, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
  EXPECT_EQ(reason, "a callback failed");
}

TEST(Callbacks, EmaIsUsedForEvaluationOnly) {
  Box box;
  auto options = regression(box, {.max_steps = 8,
                                  .learning_rate = 0.1,
                                  .eval_strategy = "steps",
                                  .eval_steps = 8,
                                  .save_strategy = "no"});
  const auto ema = std::make_shared<EmaCallback>(0.9);
  options.callbacks = {ema};
  Trainer trainer(std::move(options));
  float a = 0, average = 0;
  trainer.on(Event::step_end, [&](const CallbackContext& at, TrainerControl&) {
    a = at.model->state_dict()["a"].item<float>();
    average = average + 0.1F * (a - average);
  });
  trainer.train();
  EXPECT_EQ(weights(trainer).first, a) << "the model has its own weights again";
  const double with_average = trainer.state().log_history.front().at("eval_loss");
  EXPECT_NE(with_average, trainer.evaluate().at("eval_loss"));
  ema->swap(trainer.model());
  EXPECT_NEAR(weights(trainer).first, average, 1e-6);
  EXPECT_NEAR(trainer.evaluate().at("eval_loss"), with_average, 1e-6);
  EXPECT_EQ(error_of([] { EmaCallback bad(1.0); }).id(), "G-TRAIN-3");
}

TEST(CallbackHandle, KnowsWhichEventsTheTypeOverrides) {
  struct Ends : TrainerCallback {
    void on_step_end(const TrainingArguments&, TrainerState&, TrainerControl&,
                     const CallbackContext&) override {}
  };
  struct EndsAndLogs : Ends {
   private:
    void on_log(const TrainingArguments&, TrainerState&, TrainerControl&,
                const CallbackContext&) override {}
  };
  const auto events = [](const CallbackHandle& handle) {
    Names names;
    for (int i = 0; i < kEventCount; ++i)
      if (handle.listens_to(Event(i))) names.emplace_back(event_name(Event(i)));
    return names;
  };
  EXPECT_EQ(events(std::make_shared<Ends>()), (Names{"on_step_end"}));
  EXPECT_EQ(events(std::make_shared<EndsAndLogs>()), (Names{"on_step_end", "on_log"}))
      << "inherited and private functions count";
  EXPECT_EQ(events(make_callback(Event::save, every(1), [](const auto&, auto&) {})),
            (Names{"on_save"}));
  const std::shared_ptr<TrainerCallback> unknown = std::make_shared<Ends>();
  EXPECT_EQ(int(events(unknown).size()), kEventCount) << "the pointer does not tell";
}

TEST(Callbacks, OneThatStopsAsAnInterruptionLeavesTheEndOfTheRunOut) {
  struct Breaks : TrainerCallback {
    void on_step_end(const TrainingArguments&, TrainerState& state, TrainerControl& control,
                     const CallbackContext&) override {
      control.should_training_stop = control.is_interrupted = state.global_step == 2;
    }
  };
  Box box;
  auto options = regression(box, {.max_steps = 6, .save_strategy = "no"});
  const auto recorder = std::make_shared<EventRecorder>();
  options.callbacks = {recorder, std::make_shared<Breaks>()};
  Trainer trainer(std::move(options));
  trainer.train();
  EXPECT_EQ(trainer.state().global_step, 2);
  const auto& heard = recorder->events;
  EXPECT_EQ(std::count(heard.begin(), heard.end(), "on_epoch_end"), 0);
}

TEST(Callbacks, ATrackerHearsWhereTrainingBegins) {
  struct Recorder : Tracker {
    void begin(const json&, const json&) override { calls.emplace_back("begin"); }
    void training_begins(int64_t step) override { calls.push_back(fmt::format("from {}", step)); }
    void log(const std::map<std::string, double>&, int64_t step) override {
      calls.push_back(fmt::format("log {}", step));
    }
    void finish() override { calls.emplace_back("finish"); }
    Names calls;
  };
  Box box;
  const auto calls_of = [&](int64_t steps, bool resumes) {
    auto options = regression(
        box,
        {.max_steps = steps, .logging_strategy = "no", .save_strategy = "steps", .save_steps = 2});
    const auto tracker = std::make_shared<Recorder>();
    options.callbacks = {std::make_shared<TrackerCallback>("mine", tracker)};
    Trainer trainer(std::move(options));
    trainer.train(resumes ? Resume::last() : Resume::none());
    return tracker->calls;
  };
  EXPECT_EQ(calls_of(2, false), (Names{"begin", "from 0", "log 2", "finish"}));
  EXPECT_EQ(calls_of(4, true), (Names{"begin", "from 2", "log 4", "finish"}));
}

TEST(Callbacks, ThroughputIsLogged) {
  Box box;
  auto options = regression(box, {.max_steps = 4,
                                  .logging_steps = 2,
                                  .include_num_input_tokens_seen = "all",
                                  .save_strategy = "no"});
  const auto throughput = std::make_shared<ThroughputCallback>();
  options.callbacks = {throughput};
  Trainer trainer(std::move(options));
  trainer.train();
  EXPECT_GT(throughput->tokens_per_second(), 0);
  EXPECT_GT(trainer.state().log_history.front().at("tokens_per_second").get<double>(), 0);
  EXPECT_EQ(trainer.state().num_input_tokens_seen, 32);
  EXPECT_EQ(trainer.state().log_history.front().at("num_input_tokens_seen"), 16);
}

}  // namespace
}  // namespace gradus::testing
