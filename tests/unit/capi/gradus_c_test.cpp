#include <gradus/gradus_c.h>
#include <gradus/models/auto_model.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

namespace gradus {
namespace {

namespace fs = std::filesystem;

/// The folder of a tiny GPT-2, which is there as long as this object.
class TinyModel {
 public:
  TinyModel() : folder(fs::temp_directory_path() / ("gradus-c-" + std::to_string(::getpid()))) {
    torch::manual_seed(0);
    model_from_config(ModelTask::causal_lm, {{"model_type", "gpt2"},
                                             {"vocab_size", 40},
                                             {"n_positions", 16},
                                             {"n_embd", 16},
                                             {"n_layer", 1},
                                             {"n_head", 2},
                                             {"resid_pdrop", 0.0},
                                             {"embd_pdrop", 0.0},
                                             {"attn_pdrop", 0.0}})
        ->save_pretrained(folder / "model");
  }
  ~TinyModel() { fs::remove_all(folder); }

  gradus_trainer open(const char* options = R"({"learning_rate": 0.01, "max_steps": 50})") const {
    gradus_trainer trainer = 0;
    gradus_error error{};
    EXPECT_EQ(gradus_open((folder / "model").c_str(), "causal-lm", options, &trainer, &error),
              GRADUS_OK)
        << error.text;
    return trainer;
  }

  fs::path folder;
};

struct Tokens {
  int64_t ids[2 * 8];
  int64_t sizes[2] = {2, 8};
  gradus_tensor batch[2] = {{"input_ids", GRADUS_INT64, 2, sizes, ids},
                            {"labels", GRADUS_INT64, 2, sizes, ids}};
  Tokens() {
    for (int i = 0; i < 16; ++i) ids[i] = (i * 5) % 40;
  }
};

double loss_of_step(gradus_trainer trainer, const Tokens& tokens) {
  double loss = -1.0;
  gradus_error error{};
  EXPECT_EQ(gradus_step(trainer, tokens.batch, 2, &loss, &error), GRADUS_OK) << error.text;
  return loss;
}

TEST(CInterface, TrainsAndGoesOnFromWhatItSaved) {
  const TinyModel tiny;
  const Tokens tokens;
  const auto first = tiny.open(), second = tiny.open();
  EXPECT_NE(first, second);
  const double begin = loss_of_step(first, tokens);
  for (int i = 0; i < 4; ++i) loss_of_step(first, tokens);
  const auto saved = tiny.folder / "saved";
  ASSERT_EQ(gradus_save(first, saved.c_str(), nullptr), GRADUS_OK);
  std::vector<double> expected, found;
  for (int i = 0; i < 3; ++i) expected.push_back(loss_of_step(first, tokens));
  EXPECT_LT(expected.back(), begin);

  gradus_error error{};
  ASSERT_EQ(gradus_load(second, saved.c_str(), &error), GRADUS_OK) << error.text;
  int64_t steps = 0;
  ASSERT_EQ(gradus_steps(second, &steps, nullptr), GRADUS_OK);
  EXPECT_EQ(steps, 5);
  for (int i = 0; i < 3; ++i) found.push_back(loss_of_step(second, tokens));
  EXPECT_EQ(found, expected);
  EXPECT_EQ(gradus_close(first, nullptr), GRADUS_OK);
  EXPECT_EQ(gradus_close(second, nullptr), GRADUS_OK);
}

TEST(CInterface, AccumulatesAndSavesOnlyBetweenWindows) {
  const TinyModel tiny;
  const Tokens tokens;
  const auto trainer = tiny.open(R"({"gradient_accumulation_steps": 2})");
  loss_of_step(trainer, tokens);
  int64_t steps = -1;
  gradus_steps(trainer, &steps, nullptr);
  EXPECT_EQ(steps, 0);
  gradus_error error{};
  EXPECT_EQ(gradus_save(trainer, (tiny.folder / "half").c_str(), &error), GRADUS_USAGE);
  EXPECT_STREQ(error.id, "G-CAPI-1");
  loss_of_step(trainer, tokens);
  gradus_steps(trainer, &steps, nullptr);
  EXPECT_EQ(steps, 1);
  gradus_close(trainer, nullptr);
}

TEST(CInterface, PredictsIntoTheRoomItIsGiven) {
  const TinyModel tiny;
  const Tokens tokens;
  const auto trainer = tiny.open();
  std::vector<float> values(2 * 8 * 40);
  int64_t sizes[8] = {};
  int32_t dims = 0;
  gradus_error error{};
  EXPECT_EQ(
      gradus_predict(trainer, tokens.batch, 1, "logits", values.data(), 5, sizes, &dims, &error),
      GRADUS_BAD_ARGUMENT);
  EXPECT_EQ(dims, 3);
  EXPECT_EQ(sizes[2], 40);
  EXPECT_EQ(gradus_predict(trainer, tokens.batch, 1, "logits", values.data(), values.size(), sizes,
                           &dims, &error),
            GRADUS_OK)
      << error.text;
  EXPECT_NE(values[0], 0.0f);
  EXPECT_EQ(gradus_predict(trainer, tokens.batch, 1, "nothing", values.data(), values.size(), sizes,
                           &dims, &error),
            GRADUS_MODEL);
  gradus_close(trainer, nullptr);
}

TEST(CInterface, RefusesWrongHandles) {
  const TinyModel tiny;
  const Tokens tokens;
  const auto trainer = tiny.open();
  ASSERT_EQ(gradus_close(trainer, nullptr), GRADUS_OK);
  double loss = 0.0;
  int64_t steps = 0;
  gradus_error error{};
  for (const gradus_trainer wrong : {trainer, gradus_trainer(0), ~gradus_trainer(0)}) {
    EXPECT_EQ(gradus_step(wrong, tokens.batch, 2, &loss, &error), GRADUS_BAD_HANDLE);
    EXPECT_EQ(gradus_evaluate(wrong, tokens.batch, 2, &loss, &error), GRADUS_BAD_HANDLE);
    EXPECT_EQ(gradus_steps(wrong, &steps, &error), GRADUS_BAD_HANDLE);
    EXPECT_EQ(gradus_save(wrong, "x", &error), GRADUS_BAD_HANDLE);
    EXPECT_EQ(gradus_load(wrong, "x", &error), GRADUS_BAD_HANDLE);
    EXPECT_EQ(gradus_close(wrong, &error), GRADUS_BAD_HANDLE);
  }
  EXPECT_NE(std::string(error.text).find("is not open"), std::string::npos);
}

TEST(CInterface, RefusesWrongArguments) {
  const TinyModel tiny;
  Tokens tokens;
  const auto trainer = tiny.open();
  double loss = 0.0;
  gradus_error error{};
  const auto step = [&](size_t count = 2) {
    return gradus_step(trainer, tokens.batch, count, &loss, &error);
  };
  EXPECT_EQ(gradus_step(trainer, nullptr, 2, &loss, &error), GRADUS_BAD_ARGUMENT);
  EXPECT_EQ(step(0), GRADUS_BAD_ARGUMENT);
  EXPECT_EQ(gradus_evaluate(trainer, tokens.batch, 2, nullptr, &error), GRADUS_BAD_ARGUMENT);
  EXPECT_EQ(gradus_save(trainer, nullptr, &error), GRADUS_BAD_ARGUMENT);
  tokens.batch[0].name = nullptr;
  EXPECT_EQ(step(), GRADUS_BAD_ARGUMENT);
  tokens.batch[0].name = "input_ids";
  tokens.batch[0].data = nullptr;
  EXPECT_EQ(step(), GRADUS_BAD_ARGUMENT);
  tokens.batch[0].data = tokens.ids;
  tokens.batch[0].dims = 9;
  EXPECT_EQ(step(), GRADUS_BAD_ARGUMENT);
  tokens.batch[0].dims = 2;
  tokens.sizes[0] = -1;
  EXPECT_EQ(step(), GRADUS_BAD_ARGUMENT);
  tokens.sizes[0] = int64_t{1} << 62;
  EXPECT_EQ(step(), GRADUS_BAD_ARGUMENT);
  tokens.sizes[0] = 2;
  tokens.batch[0].dtype = 77;
  EXPECT_EQ(step(), GRADUS_BAD_ARGUMENT);
  gradus_trainer other = 7;
  EXPECT_EQ(gradus_open(nullptr, nullptr, nullptr, &other, &error), GRADUS_BAD_ARGUMENT);
  EXPECT_EQ(gradus_open("nowhere", "causal-lm", nullptr, nullptr, &error), GRADUS_BAD_ARGUMENT);
  EXPECT_EQ(gradus_open("nowhere", "causal-lm", nullptr, &other, &error), GRADUS_MODEL);
  EXPECT_EQ(other, 0u);
  EXPECT_EQ(gradus_open("nowhere", "no-task", nullptr, &other, &error), GRADUS_USAGE);
  EXPECT_EQ(gradus_open((tiny.folder / "model").c_str(), "causal-lm", "[]", &other, &error),
            GRADUS_BAD_ARGUMENT);
  EXPECT_NE(gradus_open((tiny.folder / "model").c_str(), "causal-lm", R"({"learning_rat": 1})",
                        &other, &error),
            GRADUS_OK);
  EXPECT_EQ(gradus_close(trainer, nullptr), GRADUS_OK);
}

TEST(CInterface, RefusesOptionsThatAStepWouldNotFollow) {
  const TinyModel tiny;
  gradus_trainer other = 7;
  gradus_error error{};
  const auto open = [&](const char* options) {
    return gradus_open((tiny.folder / "model").c_str(), "causal-lm", options, &other, &error);
  };
  for (const char* options : {R"({"bf16": true})", R"({"label_smoothing_factor": 0.1})",
                              R"({"zero_stage": 1})", R"({"cpu_matmul": "onednn"})",
                              R"({"lr_scheduler_type": "reduce_lr_on_plateau", "max_steps": 5})",
                              R"({"lr_scheduler_type": "reduce_lr_on_plateau"})"})
    EXPECT_EQ(open(options), GRADUS_USAGE) << options;
  EXPECT_EQ(std::string(error.id), "G-CAPI-1");
  EXPECT_EQ(open(R"({"bf16": false, "label_smoothing_factor": 0.0, "cpu_matmul": "torch"})"),
            GRADUS_OK)
      << error.text;
  gradus_close(other, nullptr);
}

TEST(CInterface, KeepsEverythingWhenALoadFails) {
  const TinyModel tiny;
  const Tokens tokens;
  const auto trainer = tiny.open(), untouched = tiny.open();
  gradus_error error{};
  ASSERT_EQ(gradus_save(trainer, (tiny.folder / "saved").c_str(), &error), GRADUS_OK) << error.text;
  fs::remove(tiny.folder / "saved" / "model.safetensors");
  loss_of_step(trainer, tokens);
  loss_of_step(untouched, tokens);
  EXPECT_NE(gradus_load(trainer, (tiny.folder / "saved").c_str(), &error), GRADUS_OK);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(loss_of_step(trainer, tokens), loss_of_step(untouched, tokens)) << i;
  gradus_close(trainer, nullptr);
  gradus_close(untouched, nullptr);
}

TEST(CInterface, ClosesWhileOtherThreadsCall) {
  const TinyModel tiny;
  const auto trainer = tiny.open();
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      const Tokens tokens;
      for (int j = 0; j < 20; ++j) {
        const auto status = gradus_step(trainer, tokens.batch, 2, nullptr, nullptr);
        if (status != GRADUS_OK && status != GRADUS_BAD_HANDLE) ++wrong;
      }
    });
  EXPECT_EQ(gradus_close(trainer, nullptr), GRADUS_OK);
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace gradus
