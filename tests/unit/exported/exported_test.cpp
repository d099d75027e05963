// What a manifest of an exported model may hold. Whole models: tests/differential/exported_test.py.
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/models/auto_model.h>
#include <gradus/models/exported_model.h>
#include <gradus/models/scripted_model.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "models/exported/export_manifest.h"
#include "models/exported/exported_gradients.h"
#include "models/exported/step_files.h"
#include "models/exported/step_inputs.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json small_manifest() {
  return parse_json(R"({
    "format": 1, "class_name": "Tiny", "task": "causal_lm", "command": "tools/export_model.py a b",
    "inputs": [
      {"name": "input_ids", "dtype": "int64", "shape": ["batch", "length"], "is_label": false,
       "fill": null},
      {"name": "attention_mask", "dtype": "int64", "shape": ["batch", "length"],
       "is_label": false, "fill": 1},
      {"name": "labels", "dtype": "int64", "shape": ["batch", "length"], "is_label": true,
       "fill": -100}],
    "dims": {"batch": {"min": 1, "max": 8}, "length": {"min": 2, "max": 16}},
    "parameters": [{"name": "body.weight", "shape": [3, 2], "dtype": "float32", "trains": true}],
    "buffers": [{"name": "body.mean", "shape": [2], "dtype": "float32"}],
    "tied": {"head.weight": "body.weight"}, "layer_norms": [], "embeddings": ["body.weight"],
    "accepts_loss_kwargs": true, "takes_items": true, "shifts_labels": true,
    "counts_shifted_labels": true, "main_input_name": "input_ids", "ignored_outputs": [],
    "dropout": false, "gradient_checkpointing": false, "precision": "float32",
    "packages": [{"device": "cpu", "torch_version": "2.15.0", "cpu_capability": "AVX2",
      "train": {"file": "train-cpu.pt2", "bytes": 10, "checksum": "crc32:00000000",
        "outputs": [], "gradients": ["body.weight"], "buffers": ["body.mean"]}}]
  })");
}

/// A folder that holds a manifest, as long as this object lives.
class ManifestFolder {
 public:
  explicit ManifestFolder(const json& manifest)
      : path(fs::temp_directory_path() / ("gradus-exported-" + std::to_string(::getpid()))) {
    fs::create_directories(path);
    write_file_atomically(path / "exported.json", dump_json(manifest));
    write_file_atomically(path / "config.json", "{}");
  }
  ~ManifestFolder() { fs::remove_all(path); }
  fs::path path;
};

template <class Work>
std::string message_of(const std::string& id, const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), id);
    return error.what();
  }
  ADD_FAILURE() << "expected " << id;
  return "";
}

std::string refusal(const json& manifest) {
  const ManifestFolder folder(manifest);
  return message_of("G-EXPORT-1", [&] { ExportManifest::read(folder.path); });
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ExportManifest, ReadsAllItNeeds) {
  const ManifestFolder folder(small_manifest());
  const auto manifest = ExportManifest::read(folder.path);
  EXPECT_EQ(manifest.input_names(),
            (std::vector<std::string>{"input_ids", "attention_mask", "labels"}));
  EXPECT_EQ(manifest.label_names(), std::vector<std::string>{"labels"});
  EXPECT_EQ(manifest.dims.at("length").most, 16);
  ASSERT_NE(manifest.package_for("cpu"), nullptr);
  EXPECT_FALSE(manifest.package_for("cpu")->forward);
  EXPECT_EQ(manifest.package_for("cuda"), nullptr);
}

TEST(ExportManifest, NamesWhatIsWrong) {
  for (const auto* member : {"format", "inputs", "parameters", "tied", "packages", "precision"}) {
    auto manifest = small_manifest();
    manifest.erase(member);
    EXPECT_TRUE(has(refusal(manifest), member)) << member;
  }
  const auto changed = [](const char* pointer, const json& value) {
    auto manifest = small_manifest();
    manifest[json::json_pointer(pointer)] = value;
    return refusal(manifest);
  };
  EXPECT_TRUE(has(changed("/format", 2), "format 2"));
  EXPECT_TRUE(has(changed("/parameters/0/shape/0", -1), "whole number"));
  EXPECT_TRUE(has(changed("/parameters/0/shape/0", int64_t{1} << 50), "too large"));
  EXPECT_TRUE(has(changed("/parameters/0/dtype", "complex"), "complex"));
  EXPECT_TRUE(has(changed("/parameters/0/name", "a..b"), "a..b"));
  EXPECT_TRUE(has(changed("/tied/head.weight", "nobody"), "nobody"));
  EXPECT_TRUE(has(changed("/packages/0/train/file", "../x.pt2"), "../x.pt2"));
  EXPECT_TRUE(has(changed("/packages/0/train/gradients/0", "body.mean"), "body.mean"));
  EXPECT_TRUE(has(changed("/buffers/0/name", "body.weight"), "appears twice"));
  EXPECT_TRUE(has(changed("/inputs/0/shape/0", "nothing"), "shape"));
}

TEST(ExportedModel, SaysWhatAFolderLacks) {
  EXPECT_FALSE(ExportedModel::is_exported("/nowhere"));
  EXPECT_TRUE(has(message_of("G-EXPORT-1", [] { ExportedModel::load("/nowhere"); }), "/nowhere"));
  EXPECT_TRUE(
      has(message_of("G-EXPORT-1", [] { ScriptedModel::load("/nowhere"); }), "scripted.json"));
  auto manifest = small_manifest();
  manifest["packages"][0]["torch_version"] = "2.4.0";
  const ManifestFolder folder(manifest);
  EXPECT_TRUE(has(message_of("G-EXPORT-3", [&] { ExportedModel::load(folder.path); }),
                  "exported with torch 2.4.0"));
}

TEST(StepInputs, FillsWhatHasNoEffect) {
  const ManifestFolder folder(small_manifest());
  const auto manifest = ExportManifest::read(folder.path);
  StepInputs inputs(manifest, torch::kCPU);
  inputs.add_batch({{"input_ids", torch::ones({2, 4}, torch::kInt)}});
  ASSERT_EQ(inputs.values().size(), 3u);
  EXPECT_EQ(inputs.values()[0].scalar_type(), torch::kLong);
  EXPECT_TRUE(inputs.values()[1].eq(1).all().item<bool>());
  EXPECT_TRUE(inputs.values()[2].eq(-100).all().item<bool>());
  EXPECT_TRUE(inputs.lacks_labels());
  message_of("G-EXPORT-4", [&] { inputs.need_labels(); });
}

TEST(StepInputs, CountsItemsAsTheLossDoes) {
  const ManifestFolder folder(small_manifest());
  const auto manifest = ExportManifest::read(folder.path);
  const auto labels = torch::tensor({{1, 2, -100, 3}, {4, -100, -100, 5}}, torch::kLong);
  StepInputs inputs(manifest, torch::kCPU);
  inputs.add_batch({{"input_ids", torch::ones({2, 4}, torch::kLong)}, {"labels", labels}});
  inputs.add_items(std::nullopt);
  EXPECT_EQ(inputs.values().back().item<int64_t>(), 3);  // the first of a row is never predicted
  inputs.add_items(torch::tensor(9));
  EXPECT_EQ(inputs.values().back().item<int64_t>(), 9);
}

TEST(StepInputs, RefusesOtherSizes) {
  const ManifestFolder folder(small_manifest());
  const auto manifest = ExportManifest::read(folder.path);
  const auto refused = [&](const Batch& batch) {
    return message_of("G-EXPORT-4", [&] { StepInputs(manifest, torch::kCPU).add_batch(batch); });
  };
  const auto ids = [](int64_t rows, int64_t tokens) {
    return torch::ones({rows, tokens}, torch::kLong);
  };
  EXPECT_TRUE(has(refused({{"input_ids", ids(2, 17)}}), "--max_length 17"));
  EXPECT_TRUE(has(refused({{"input_ids", ids(9, 4)}}), "--max_batch 9"));
  EXPECT_TRUE(has(refused({{"input_ids", ids(2, 1)}}), "from 2 to 16"));
  EXPECT_TRUE(has(refused({{"input_ids", torch::ones({2})}}), "received [2]"));
  EXPECT_TRUE(has(refused({{"input_ids", ids(2, 4)}, {"labels", ids(2, 5)}}), "length"));
  EXPECT_TRUE(has(refused({{"labels", ids(2, 4)}}), "input_ids"));
}

// In the compiled step, a loop over several threads would find such a number, and end the program.
TEST(StepInputs, RefusesNumbersOutOfRange) {
  auto text = small_manifest();
  text["inputs"][0]["values"] = {{"below", 40}, {"ignored", nullptr}};
  text["inputs"][2]["values"] = {{"below", 5}, {"ignored", -100}};
  const ManifestFolder folder(text);
  const auto manifest = ExportManifest::read(folder.path);
  const auto with = [](int64_t id, int64_t label) {
    auto ids = torch::ones({2, 4}, torch::kLong), labels = ids.clone();
    ids[1][2] = id;
    labels[1][3] = label;
    return Batch{{"input_ids", ids}, {"labels", labels}};
  };
  const auto refused = [&](const Batch& batch) {
    return message_of("G-EXPORT-4", [&] { StepInputs(manifest, torch::kCPU).add_batch(batch); });
  };
  StepInputs(manifest, torch::kCPU).add_batch(with(39, -100));
  EXPECT_TRUE(has(refused(with(40, 1)), "input_ids holds 40 in row 1 of the batch"));
  EXPECT_TRUE(has(refused(with(-1, 1)), "takes 0 to 39"));
  EXPECT_TRUE(has(refused(with(1, 5)), "takes 0 to 4, and -100 for none"));
  EXPECT_TRUE(has(refused(with(1, -5)), "labels holds -5"));
  text["inputs"][0]["values"] = {{"below", "many"}, {"ignored", nullptr}};
  EXPECT_TRUE(has(refusal(text), "below"));
}

// The CTC loss with its blank is part of the compiled step.
TEST(StepFiles, RefuseAnotherKindOfCtcLoss) {
  const json config = {{"vocab_size", 13}, {"pad_token_id", 10}, {"ctc_loss_reduction", "sum"}};
  auto text = small_manifest();
  text["task"] = "ctc";
  const ManifestFolder folder(text);
  const auto manifest = ExportManifest::read(folder.path);
  const auto check = [&](const json& changes) {
    check_config_changes(folder.path, config, changes, manifest);
  };
  check({{"vocab_size", 13}, {"ctc_loss_reduction", "sum"}, {"mask_time_prob", 0.05}});
  const auto said = message_of("G-EXPORT-5", [&] { check({{"ctc_loss_reduction", "mean"}}); });
  EXPECT_TRUE(has(said, "ctc_loss_reduction is \"mean\" here, but")) << said;
  EXPECT_TRUE(has(said, "was exported with \"sum\"")) << said;
  EXPECT_TRUE(has(said, "tools/export_model.py a b")) << said;
  message_of("G-EXPORT-5", [&] { check({{"vocab_size", 14}}); });
  message_of("G-EXPORT-5", [&] { check({{"pad_token_id", 0}}); });
}

TEST(ExportedGradients, ReachTheParametersScaledAndOnce) {
  auto a = torch::ones({2}).requires_grad_(), b = torch::ones({3}).requires_grad_(),
       frozen = torch::ones({2});
  const auto shared = torch::arange(6, torch::kFloat);
  const auto loss = loss_with_gradients(torch::tensor(2.0f), {a, frozen, b},
                                        {shared.slice(0, 0, 2), {}, shared.slice(0, 3, 6)});
  EXPECT_TRUE(loss.requires_grad());
  (loss * 3).backward({}, /*retain_graph=*/true);
  EXPECT_TRUE(torch::equal(a.grad(), torch::tensor({0.0f, 3.0f})));
  EXPECT_TRUE(torch::equal(b.grad(), torch::tensor({9.0f, 12.0f, 15.0f})));
  EXPECT_FALSE(frozen.grad().defined());
  message_of("G-EXPORT-6", [&] { (loss * 3).backward(); });

  // A second window adds to the gradients that are there.
  loss_with_gradients(torch::tensor(1.0f), {a, b}, {torch::ones({2}), {}}).backward();
  EXPECT_TRUE(torch::equal(a.grad(), torch::tensor({1.0f, 4.0f})));
  EXPECT_TRUE(torch::equal(b.grad(), torch::tensor({9.0f, 12.0f, 15.0f})));
}

}  // namespace
}  // namespace gradus
