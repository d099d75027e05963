#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/formats/safetensors.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <fstream>

#include "../error_of.h"
#include "core/mapped_reads.h"
#include "formats/byte_readers.h"
#include "formats/file_storage.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;

const fs::path kFixtures = fs::path(GRADUS_SOURCE_DIR) / "tests/parity/formats/fixtures";

fs::path fresh_folder(const std::string& name) {
  const auto folder = fs::path(testing::TempDir()) / ("gradus_" + name);
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

std::string file_of(const std::string& header, const std::string& data, uint64_t claimed) {
  return std::string(reinterpret_cast<const char*>(&claimed), 8) + header + data;
}
std::string file_of(const std::string& header, const std::string& data = "") {
  return file_of(header, data, header.size());
}

/// The error that reading these bytes gives.
std::string error_of(const std::string& bytes) {
  try {
    read_safetensors(MappedFile::from_bytes(bytes, "x.safetensors"));
  } catch (const Error& error) {
    return error.id() + " " + error.message();
  }
  return "none";
}

const torch::Tensor& named(const NamedTensors& tensors, const std::string& name) {
  for (const auto& [key, tensor] : tensors)
    if (key == name) return tensor;
  throw std::runtime_error("no tensor " + name);
}

TEST(Safetensors, HeaderOfManyTensors) {
  std::string header = "{";
  for (int i = 0; i < 100'000; ++i)
    header += "\"layer." + std::to_string(i) +
              R"(": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}, )";
  const auto last =
      std::string(R"("last": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})");
  const auto file =
      read_safetensors(MappedFile::from_bytes(file_of(header + last, "abcd"), "x.safetensors"));
  EXPECT_EQ(file.tensors.size(), 100'001u);
  EXPECT_EQ(file.tensors.back().first, "last");
  EXPECT_EQ(error_of(file_of(header + R"("layer.5": {}})")),
            "G-ST-2 cannot read x.safetensors: the header names tensor 'layer.5' twice");
}

TEST(Safetensors, ReadsWhatPythonWroteAndWritesTheSameBytes) {
  const auto folder = fresh_folder("safetensors_python");
  for (const auto* name : {"dtypes.safetensors", "no_metadata.safetensors"}) {
    const auto file = read_safetensors(kFixtures / name);
    auto shuffled = file.tensors;
    std::reverse(shuffled.begin(), shuffled.end());
    const auto written = write_safetensors(folder / name, shuffled, file.metadata);
    const auto expected = read_file(kFixtures / name);
    EXPECT_EQ(read_file(folder / name), expected) << name;
    EXPECT_EQ(written, file_checksum(kFixtures / name));
  }
  const auto file = read_safetensors(kFixtures / "dtypes.safetensors");
  EXPECT_EQ(file.metadata, (SafetensorsMetadata{{"format", "pt"}}));
  EXPECT_EQ(named(file.tensors, "scalar").item<double>(), 2.5);
  EXPECT_TRUE(at::equal(named(file.tensors, "ids"), at::arange(7)));
  EXPECT_EQ(named(file.tensors, "empty").sizes(), (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(named(file.tensors, "61taolfb").scalar_type(), at::kBFloat16);
  EXPECT_EQ(named(file.tensors, "q\"u\\o\t\u00e9").item<float>(), 1.f);
}

TEST(Safetensors, MapsWithoutCopyAndNeverWritesBack) {
  const auto file = fresh_folder("safetensors_map") / "a.safetensors";
  write_safetensors(file, {{"w", at::arange(1000, at::kFloat)}, {"v", at::ones({10})}});
  const auto before = file_checksum(file);
  auto tensors = read_safetensors(file).tensors;
  const auto* v = static_cast<const char*>(named(tensors, "v").const_data_ptr());
  const auto* w = static_cast<const char*>(named(tensors, "w").const_data_ptr());
  EXPECT_EQ(w - v, 40);  // side by side as in the file: views of one mapping
  named(tensors, "w").add_(1);
  EXPECT_EQ(file_checksum(file), before);
  fs::remove(file);
  EXPECT_EQ(named(tensors, "w")[999].item<float>(), 1000.f);
  tensors.erase(tensors.begin());
  EXPECT_EQ(tensors[0].second.sum().item<double>(), 999. * 1000 / 2 + 1000);
}

TEST(Safetensors, AFileThatIsCutAfterwardsIsAnErrorWhereItIsRead) {
  const auto file = fresh_folder("cut") / "x.safetensors";
  write_safetensors(file, {{"a", at::ones({100'000})}});
  const auto tensors = read_safetensors(file).tensors;
  fs::resize_file(file, 4096);
  EXPECT_NE(gradus::error_of([&] {
              read_mapped([&] { return tensors[0].second.clone(); });
            }).find("x.safetensors: it became shorter while it was read [G-IO-4]"),
            std::string::npos);
}

TEST(Safetensors, WritesAnyLayoutAndSyncs) {
  const auto file = fresh_folder("safetensors_layout") / "a.safetensors";
  const auto base = at::arange(12, at::kFloat).reshape({3, 4});
  write_safetensors(file,
                    {{"t", base.t()},
                     {"e", base.slice(1, 0, 1).expand({3, 5})},
                     {"p", torch::Tensor(base.clone()).requires_grad_()}},
                    {}, Sync::yes);
  const auto tensors = read_safetensors(file).tensors;
  EXPECT_TRUE(at::equal(named(tensors, "t"), base.t()));
  EXPECT_TRUE(at::equal(named(tensors, "e"), base.slice(1, 0, 1).expand({3, 5})));
  EXPECT_FALSE(named(tensors, "p").requires_grad());
}

TEST(Safetensors, CopiesOnlyWhatIsNotAligned) {
  // A header of 57 bytes: the data begins at an odd byte.
  auto bytes = file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}   )",
                       std::string("\0\0\x80\x3f", 4));
  const auto file = MappedFile::from_bytes(bytes, "x");
  const auto tensors = read_safetensors(file).tensors;
  EXPECT_EQ(tensors[0].second.item<float>(), 1.f);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensors[0].second.const_data_ptr()) % 4, 0u);
}

TEST(Safetensors, AcceptsWhatTheReferenceAccepts) {
  EXPECT_EQ(error_of(file_of("{}")), "none");
  EXPECT_EQ(
      error_of(file_of(R"( {"a":{"dtype":"U8","shape":[],"data_offsets":[0,1],"extra":1}} )", "x")),
      "none");
  EXPECT_EQ(error_of(file_of(R"({"__metadata__":null})")), "none");
  EXPECT_EQ(error_of(file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                             R"("b":{"dtype":"F64","shape":[0],"data_offsets":[0,0]}})",
                             "x")),
            "none");
}

TEST(Safetensors, RefusesAWrongHeaderLength) {
  EXPECT_EQ(error_of("1234567"),
            "G-ST-1 cannot read x.safetensors: 7 bytes, expected at least 8 for the length of the "
            "header");
  EXPECT_EQ(error_of(file_of("{}", "", 10'000'000'000)),
            "G-ST-1 cannot read x.safetensors: the header claims 10000000000 bytes, the format "
            "allows at most 100000000");
  EXPECT_EQ(error_of(file_of("{}", "", 3)),
            "G-ST-1 cannot read x.safetensors: the header claims 3 bytes, only 2 follow");
  EXPECT_EQ(error_of(file_of("", "", UINT64_MAX)).substr(0, 7), "G-ST-1 ");
}

TEST(Safetensors, RefusesAHeaderThatIsNotTheExpectedJson) {
  for (const std::string header : {"", "{", "[]", "null", "{\"a\":NaN}", "\xff{}", R"({"a":1}x)",
                                   R"({"__metadata__":{"a":1}})", R"({"__metadata__":[]})",
                                   R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                                   R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})"})
    EXPECT_EQ(error_of(file_of(header)).substr(0, 7), "G-ST-2 ") << header;
  EXPECT_EQ(error_of(file_of(std::string(1'000'000, '['))),
            "G-ST-2 cannot read x.safetensors: the header is nested too deep");
  EXPECT_NE(error_of(file_of(R"({"a":{"dtype":"U8"},"a":{}})")).find("names tensor 'a' twice"),
            std::string::npos);
}

TEST(Safetensors, RefusesAnEntryThatLies) {
  const auto entry = [](const std::string& dtype, const std::string& shape,
                        const std::string& range) {
    return error_of(file_of(
        R"({"w":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + range + "}}",
        "12345678"));
  };
  const std::string start = "G-ST-3 cannot read x.safetensors: tensor 'w': ";
  EXPECT_EQ(entry("\"F32\"", "[2]", "[0,8]"), "none");
  EXPECT_EQ(entry("\"F32\"", "[3]", "[0,8]"),
            start + "shape [3] of F32 takes 12 bytes, data_offsets give 8");
  EXPECT_EQ(entry("\"F32\"", "[2]", "[8,16]"),
            start + "data_offsets [8, 16] are outside of the 8 bytes of data");
  EXPECT_EQ(entry("\"F32\"", "[2]", "[8,0]"),
            start + "data_offsets [8, 0] are outside of the 8 bytes of data");
  EXPECT_EQ(entry("\"F33\"", "[2]", "[0,8]").substr(0, start.size() + 27),
            start + "dtype \"F33\" is not known; k");
  EXPECT_EQ(entry("32", "[2]", "[0,8]"), start + "dtype is a JSON number, expected a string");
  EXPECT_EQ(entry("\"U8\"", "[4294967296,4294967296,4294967296]", "[0,8]"),
            start + "shape [4294967296,4294967296,4294967296] is too large to address");
  EXPECT_EQ(
      entry("\"U8\"", "[18446744073709551615]", "[0,8]"),
      start + "shape [18446744073709551615] has an entry that is not a whole number of at least 0");
  for (const auto* shape : {"[-8]", "[8.0]", "[\"8\"]", "[null]", "8", "{}"})
    EXPECT_EQ(entry("\"U8\"", shape, "[0,8]").substr(0, start.size()), start) << shape;
  for (const auto* range :
       {"[0]", "[0,8,8]", "[-1,8]", "[0,8.0]", "\"0\"", "[0,18446744073709551615]"})
    EXPECT_EQ(entry("\"U8\"", "[8]", range).substr(0, start.size()), start) << range;
  EXPECT_EQ(error_of(file_of(R"({"w":{"dtype":"U8","shape":[0]}})")), start + "no data_offsets");
  EXPECT_EQ(error_of(file_of(R"({"w":[]})")),
            start + "the entry is a JSON array, expected an object");
}

TEST(Safetensors, RefusesOverlapsHolesAndBytesLeftOver) {
  const auto two = [](const std::string& first, const std::string& second,
                      const std::string& data) {
    return error_of(file_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + first +
                                R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second +
                                "}}",
                            data));
  };
  EXPECT_EQ(two("[0,4]", "[4,8]", "12345678"), "none");
  EXPECT_EQ(two("[0,4]", "[2,6]", "123456"),
            "G-ST-4 cannot read x.safetensors: tensor 'b' begins at byte 2 of the data, expected "
            "4: ranges overlap");
  EXPECT_EQ(two("[0,4]", "[5,9]", "123456789"),
            "G-ST-4 cannot read x.safetensors: tensor 'b' begins at byte 5 of the data, expected "
            "4: ranges leave a hole");
  EXPECT_EQ(two("[0,4]", "[0,4]", "1234"),
            "G-ST-4 cannot read x.safetensors: tensor 'b' begins at byte 0 of the data, expected "
            "4: ranges overlap");
  EXPECT_EQ(two("[0,4]", "[4,8]", "123456789"),
            "G-ST-4 cannot read x.safetensors: the tensors cover 8 bytes of data, the file has 9");
}

TEST(Safetensors, RefusesToWriteWhatTheFormatCannotHold) {
  const auto file = fresh_folder("safetensors_refuse") / "a.safetensors";
  const auto error = [&](const NamedTensors& tensors) -> std::string {
    try {
      write_safetensors(file, tensors);
    } catch (const Error& error) {
      return error.id() + error.message().substr(error.message().find(':'));
    }
    return "none";
  };
  EXPECT_EQ(error({{"a", at::ones({1})}, {"a", at::ones({1})}}),
            "G-ST-5: tensor 'a' appears twice");
  EXPECT_EQ(error({{"__metadata__", at::ones({1})}}),
            "G-ST-5: tensor '__metadata__' has the name that the format keeps for itself");
  EXPECT_EQ(error({{"s", at::ones({2, 2}).to_sparse()}}), "G-ST-5: tensor 's' is not dense");
  EXPECT_EQ(error({{"u", torch::Tensor()}}), "G-ST-5: tensor 'u' is undefined");
  EXPECT_EQ(error({{"c", at::ones({1}, at::kComplexDouble)}}),
            "G-ST-5: tensor 'c' has dtype ComplexDouble, which the format does not have");
  EXPECT_EQ(error({{"\xff", at::ones({1})}}),
            "G-ST-5: a tensor name or metadata string is not valid UTF-8");
  EXPECT_FALSE(fs::exists(file));
  EXPECT_THROW(write_safetensors(file / "no" / "such", {}), Error);
}

TEST(Safetensors, AFolderCanBeSavedOverItself) {
  const auto folder = fresh_folder("safetensors_over_itself");
  const NamedTensors first = {{"a", at::arange(5000)}, {"b", at::arange(3000)}};
  write_safetensors_folder(folder, first);
  const auto mapped = read_safetensors_folder(folder);  // views of the file
  write_safetensors_folder(folder, mapped, {.max_shard_size = 30'000});
  const auto again = read_safetensors_folder(folder);
  write_safetensors_folder(folder, again, {.max_shard_size = 30'000});
  for (const auto& tensors : {mapped, again, read_safetensors_folder(folder)})
    for (const auto& [name, tensor] : tensors)
      EXPECT_TRUE(at::equal(tensor, at::arange(tensor.numel()))) << name;

  const auto bad = at::ones({1}, at::kComplexDouble);
  EXPECT_THROW(write_safetensors_folder(folder, {{"a", at::ones({5000})}, {"z", bad}},
                                        {.max_shard_size = 30'000}),
               Error);
  EXPECT_EQ(read_safetensors_folder(folder).size(), 2u) << "what was there stays";
  for (const auto& entry : fs::directory_iterator(folder))
    EXPECT_FALSE(entry.path().filename().string().starts_with(".tmp-")) << entry.path();
}

TEST(Safetensors, IsNotWrittenThroughALink) {
  const auto folder = fresh_folder("safetensors_links");
  const auto victim = folder / "victim";
  std::ofstream(victim) << "precious";
  const NamedTensors tensors = {{"a", at::arange(4)}};
  std::filesystem::create_symlink(victim, folder / "link.safetensors");
  expect_error([&] { write_safetensors(folder / "link.safetensors", tensors); }, "G-IO-2",
               {"a symbolic link has this name"});
  std::filesystem::create_symlink(victim, folder / ".tmp-model.safetensors");
  write_safetensors_folder(folder, tensors);
  EXPECT_EQ(read_safetensors_folder(folder).size(), 1u);
  EXPECT_EQ(read_file(victim), "precious");
}

TEST(Safetensors, CutsShardsAsTransformersDoes) {
  const auto folder = fresh_folder("safetensors_shards");
  const auto bytes = [](int64_t n) { return at::zeros({n}, at::kByte); };
  const auto tied = at::ones({3}, at::kByte);
  const NamedTensors tensors = {{"a", bytes(6)},     {"b", bytes(6)}, {"c", bytes(2)},
                                {"huge", bytes(20)}, {"d", tied},     {"e", bytes(6)},
                                {"f", bytes(2)},     {"g", tied}};
  const auto written = write_safetensors_folder(folder, tensors, {.max_shard_size = 10});
  ASSERT_EQ(written.size(), 6u);
  EXPECT_EQ(written[0].file_name, "model-00001-of-00005.safetensors");
  EXPECT_EQ(written.back().file_name, "model.safetensors.index.json");
  for (const auto& shard : written)
    EXPECT_EQ(file_checksum(folder / shard.file_name), shard.written) << shard.file_name;
  const auto index = read_json(folder / "model.safetensors.index.json");
  const auto shard_of = [&](const char* name) {
    return index["weight_map"][name].get<std::string>().substr(10, 1);
  };
  // huggingface_hub puts the oversized tensor before the shard that is being filled, and a tied one
  // beside its first.
  std::string shards;
  for (const auto* name : {"a", "b", "c", "huge", "d", "e", "f", "g"}) shards += shard_of(name);
  EXPECT_EQ(shards, "13324454");
  EXPECT_EQ(index["metadata"], (nlohmann::json{{"total_parameters", 45}, {"total_size", 45}}));
  EXPECT_EQ(read_safetensors_folder(folder).size(), 8u);

  write_safetensors_folder(folder, tensors, {.max_shard_size = 1000});
  EXPECT_TRUE(fs::exists(folder / "model.safetensors"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1)
      << "old shards are removed";
}

TEST(Safetensors, SaysWhatIsMissingInAFolder) {
  const auto folder = fresh_folder("safetensors_missing");
  const auto error = [&]() -> std::string {
    try {
      read_safetensors_folder(folder);
    } catch (const Error& error) {
      return error.id() + error.message().substr(error.message().find(':'));
    }
    return "none";
  };
  EXPECT_EQ(error(), "G-ST-7: neither model.safetensors nor model.safetensors.index.json exists");
  write_safetensors_folder(folder, {{"a", at::ones({4})}, {"b", at::ones({4})}},
                           {.max_shard_size = 16});
  EXPECT_EQ(error(), "none");
  fs::rename(folder / "model-00002-of-00002.safetensors", folder / "away");
  EXPECT_EQ(error(), "G-ST-7: the index names model-00002-of-00002.safetensors, which is missing");
  fs::copy_file(folder / "model-00001-of-00002.safetensors",
                folder / "model-00002-of-00002.safetensors");
  EXPECT_EQ(error(),
            "G-ST-7: the index says that model-00002-of-00002.safetensors holds tensor 'b', which "
            "it does not");
  write_file_atomically(folder / "model.safetensors.index.json",
                        R"({"weight_map": {"a": "../../etc/passwd"}})");
  EXPECT_EQ(error(),
            "G-ST-7: weight_map names '../../etc/passwd', expected a file of the same folder");
}

TEST(Safetensors, ReadsShardSizesAsHuggingFaceDoes) {
  EXPECT_EQ(parse_shard_size("500Mb"), 500'000'000u);
  EXPECT_EQ(message_of("G-ST-6", [] { parse_shard_size("5 M B"); }),
            "the shard size '5 M B' cannot be read");
}

}  // namespace
}  // namespace gradus
