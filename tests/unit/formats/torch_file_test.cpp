#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/formats/rng_state.h>
#include <gradus/formats/torch_file.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <thread>

#include "../../zip_checksums.h"
#include "formats/byte_readers.h"
#include "formats/file_storage.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;
using Tuple = StateTree::Tuple;
using List = StateTree::List;

const fs::path kTorchFiles = fs::path(GRADUS_SOURCE_DIR) / "tests/parity/formats/fixtures";

fs::path temporary(const std::string& name) {
  return fs::path(testing::TempDir()) / ("gradus_" + name);
}

/// A tree as text, tensors with dtype, sizes and values.
std::string text_of(const StateTree& tree) {
  const auto joined = [](const std::vector<StateTree>& items) {
    std::string text;
    for (const auto& item : items) text += text_of(item) + ",";
    return text;
  };
  if (tree.is_none()) return "None";
  if (tree.is_bool()) return tree.as_bool() ? "True" : "False";
  if (tree.is_int()) return std::to_string(tree.as_int());
  if (tree.is_double()) return json_number(tree.as_double());
  if (tree.is_string()) return "'" + tree.as_string() + "'";
  if (tree.is_bytes()) return "b'" + tree.as_string() + "'";
  if (tree.is_list()) return "[" + joined(tree.items()) + "]";
  if (tree.is_tuple()) return "(" + joined(tree.items()) + ")";
  if (tree.is_tensor()) {
    const auto plain = tree.as_tensor().resolve_conj().contiguous();
    std::string text = std::string(c10::toString(plain.scalar_type()));
    for (const auto size : plain.sizes()) text += "x" + std::to_string(size);
    return text + ":" +
           std::to_string(
               checksum_of(plain.const_data_ptr(), size_t(plain.numel()) * plain.element_size()));
  }
  std::string text = "{";
  for (const auto& [key, value] : tree.entries())
    text += (std::holds_alternative<int64_t>(key) ? std::to_string(std::get<int64_t>(key))
                                                  : "'" + std::get<std::string>(key) + "'") +
            ":" + text_of(value) + ",";
  return text + "}";
}

std::string bytes_of(const StateTree& tree) {
  std::string bytes;
  const auto written = write_torch_file(
      [&](const void* data, size_t size) { bytes.append(static_cast<const char*>(data), size); },
      tree);
  EXPECT_EQ(written, (WrittenFile{bytes.size(), checksum_of(bytes.data(), bytes.size())}));
  return bytes;
}

StateTree read_bytes(std::string bytes) {
  return read_torch_file(MappedFile::from_bytes(std::move(bytes), "x.pt"));
}

/// A torch file around a hand-written pickle: what the writer makes of `storage`, with the pickle
/// replaced.
std::string error_of_pickle(const std::string& pickle) {
  // The pickle of an entry of our own is as long as its text, so that the archive's offsets stay
  // right.
  const std::string room(pickle.size() < 8 ? 1 : pickle.size() - 7, '#');
  auto bytes = without_checksums(bytes_of(StateTree(room + room)));
  const auto at = bytes.find("\x80\x02X");
  EXPECT_NE(at, std::string::npos);
  bytes.replace(at, pickle.size(), pickle);
  try {
    read_bytes(bytes);
  } catch (const Error& error) {
    return error.id() + error.message().substr(error.message().find(':'));
  }
  return "none";
}

std::string number(uint64_t value, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += char(value >> (8 * i));
  return bytes;
}

TEST(TorchFile, ReadsThePythonTrainersOptimizerScheduleAndScaler) {
  const auto optimizer = read_torch_file(kTorchFiles / "optimizer.pt");
  const auto& groups = optimizer.at("param_groups").items();
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].at("weight_decay").as_double(), 0.01);
  EXPECT_EQ(text_of(groups[1].at("betas")), "(0.9,0.999,)");
  EXPECT_TRUE(groups[0].at("foreach").is_none());
  EXPECT_EQ(text_of(groups[1].at("params")), "[2,3,4,5,]");
  const auto& first = optimizer.at("state").at(int64_t{0});
  EXPECT_EQ(first.at("step").as_tensor().item<float>(), 3.f);
  EXPECT_EQ(first.at("exp_avg").as_tensor().sizes(), (std::vector<int64_t>{4, 3}));

  const auto schedule = read_torch_file(kTorchFiles / "scheduler.pt");
  EXPECT_EQ(schedule.at("last_epoch").as_int(), 3);
  EXPECT_EQ(schedule.at("_last_lr").items()[0].as_double(), 5e-5 * 0.7);
  const auto scaler = read_torch_file(kTorchFiles / "scaler.pt");
  EXPECT_EQ(text_of(scaler),
            "{'scale':65536.0,'growth_factor':2.0,'backoff_factor':0.5,'growth_interval':2000,'_"
            "growth_tracker':3,}");
}

TEST(TorchFile, ReadsAStateDictWithTiedViewsAndNewDtypes) {
  const auto state = read_torch_file(kTorchFiles / "pytorch_model.bin");
  const auto& weight = state.at("0.weight").as_tensor();
  EXPECT_EQ(state.at("tied").as_tensor().const_data_ptr(), weight.const_data_ptr());
  EXPECT_TRUE(at::equal(state.at("transposed").as_tensor(), weight.t()));
  EXPECT_EQ(state.at("transposed").as_tensor().const_data_ptr(), weight.const_data_ptr());
  EXPECT_TRUE(at::equal(state.at("row").as_tensor(), weight[1]));
  EXPECT_TRUE(at::equal(state.at("bf16").as_tensor(), at::arange(4, at::kBFloat16)));
  EXPECT_EQ(state.at("fp8").as_tensor().scalar_type(), at::kFloat8_e4m3fn);
  EXPECT_TRUE(at::equal(state.at("expanded").as_tensor(), at::ones({2, 3}) * 7));
  EXPECT_TRUE(at::equal(state.at("parameter").as_tensor(), at::tensor({1.f, -1.f})));
}

TEST(TorchFile, ReadsEveryPlainValue) {
  const auto plain = read_torch_file(kTorchFiles / "plain.pt");
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += char(i);
  EXPECT_TRUE(plain.at("none").is_none());
  EXPECT_TRUE(plain.at("true").is_bool());
  const std::vector<std::pair<std::string, int64_t>> integers = {
      {"zero", 0},
      {"byte", 255},
      {"short", 65535},
      {"int", 65536},
      {"negative", -1},
      {"min32", -2147483648LL},
      {"long", 1LL << 40},
      {"negative_long", -(1LL << 40)},
      {"max", std::numeric_limits<int64_t>::max()},
      {"min", std::numeric_limits<int64_t>::min()}};
  for (const auto& [name, value] : integers) EXPECT_EQ(plain.at(name).as_int(), value) << name;
  EXPECT_EQ(plain.at("float").as_double(), 0.1);
  EXPECT_EQ(plain.at("inf").as_double(), std::numeric_limits<double>::infinity());
  EXPECT_EQ(plain.at("text").as_string(), "\u00e9\n'\"");
  EXPECT_TRUE(plain.at("bytes").is_bytes());
  EXPECT_EQ(plain.at("bytes").as_string(), bytes);
  EXPECT_EQ(text_of(plain.at("list")), "[1,[2,(),],]");
  EXPECT_EQ(text_of(plain.at("tuple")), "(1,2.5,'x',None,)");
  EXPECT_EQ(text_of(plain.at("size")), "(2,3,)");
  EXPECT_EQ(plain.at("dtype").as_string(), "torch.float32");
  EXPECT_EQ(plain.at("device").as_string(), "cuda:1");
  EXPECT_EQ(text_of(plain.at("set")), "[5,]");
  EXPECT_EQ(plain.at(int64_t{3}).as_string(), "int key");
  EXPECT_EQ(text_of(plain.at("ordered")), "{'b':1,'a':2,}");
  EXPECT_TRUE(at::equal(plain.at("array").as_tensor(), at::arange(6).reshape({2, 3})));
  EXPECT_EQ(plain.at("number").as_double(), 0.25);
  EXPECT_EQ(plain.at("long_list").items()[2999].as_int(), 2999);
}

TEST(TorchFile, WhatItWritesItReadsBack) {
  auto tree = read_torch_file(kTorchFiles / "plain.pt");
  tree.set("nan", std::numeric_limits<double>::quiet_NaN())
      .set("empty", StateTree::dict())
      .set("utf8", "\U0001F600");
  tree.set("u64", at::ones({2, 0}, at::kUInt64))
      .set("conj", at::ones({2}, at::kComplexFloat).conj());
  for (const auto* name : {"optimizer.pt", "scheduler.pt", "scaler.pt", "pytorch_model.bin"})
    tree.set(name, read_torch_file(kTorchFiles / name));
  EXPECT_EQ(text_of(read_bytes(bytes_of(tree))), text_of(tree));

  const auto file = temporary("torch_file.pt");
  WrittenFile written;
  std::thread writer([&] { written = write_torch_file(file, tree, Sync::yes); });
  writer.join();
  EXPECT_EQ(written, file_checksum(file));
  EXPECT_EQ(text_of(read_torch_file(file)), text_of(tree));
  EXPECT_EQ(
      reinterpret_cast<uintptr_t>(read_torch_file(file).at("array").as_tensor().const_data_ptr()) %
          64,
      0u);
}

TEST(TorchFile, CanBeWrittenOverTheFileItsTensorsComeFrom) {
  const auto file = temporary("torch_file_over_itself.pt");
  write_torch_file(file, StateTree::dict().set("a", at::arange(20'000)));
  const auto first = read_torch_file(file);  // views of the file
  write_torch_file(file, first);
  EXPECT_TRUE(at::equal(first.at("a").as_tensor(), at::arange(20'000)));
  EXPECT_TRUE(at::equal(read_torch_file(file).at("a").as_tensor(), at::arange(20'000)));
}

TEST(TorchFile, WritesASharedStorageOnce) {
  const auto big = at::rand({1000});
  auto tree = StateTree::dict();
  tree.set("a", big).set("b", big).set("tail", big.slice(0, 900)).set("as_int", big.view(at::kInt));
  const auto bytes = bytes_of(tree);
  EXPECT_LT(bytes.size(), 2 * 4000u + 2000u) << "once per dtype";
  const auto back = read_bytes(bytes);
  EXPECT_EQ(back.at("a").as_tensor().const_data_ptr(), back.at("b").as_tensor().const_data_ptr());
  EXPECT_EQ(text_of(back), text_of(tree));
}

TEST(TorchFile, NeedsA64BitDirectoryForManyTensors) {
  auto list = StateTree::list();
  for (int i = 0; i < 66000; ++i) list.push(at::zeros({1}, at::kByte));
  const auto back = read_bytes(bytes_of(list));
  EXPECT_EQ(back.items().size(), 66000u);
}

TEST(TorchFile, RefusesToWriteWhatPythonCouldNotRead) {
  const auto error = [](const StateTree& tree) -> std::string {
    try {
      bytes_of(tree);
    } catch (const Error& error) {
      return error.id() + error.message().substr(error.message().find(':'));
    }
    return "none";
  };
  EXPECT_EQ(error("a\xff"), "G-PT-6: a text that is not UTF-8");
  EXPECT_EQ(error("\xed\xa0\x80"), "G-PT-6: a text that is not UTF-8");
  EXPECT_EQ(error(at::ones({2, 2}).to_sparse()), "G-PT-6: a tensor that is sparse or has no data");
  StateTree deep;
  for (int i = 0; i < 200; ++i) deep = List{{deep}};
  EXPECT_EQ(error(deep), "G-PT-6: its values are nested more than 100 deep");
  EXPECT_THROW(write_torch_file(temporary("no_such_folder") / "a.pt", StateTree()), Error);
}

TEST(TorchFile, RefusesImportsByName) {
  try {
    read_torch_file(kTorchFiles / "imports_os_system.pt");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), "G-PT-2");
    EXPECT_NE(error.message().find("it tries to import posix.system, which is not allowed"),
              std::string::npos)
        << error.message();
  }
  EXPECT_EQ(error_of_pickle("\x80\x02"
                            "cbuiltins\neval\n."),
            "G-PT-2: it tries to import builtins.eval, which is not allowed");
  EXPECT_EQ(error_of_pickle("\x80\x04\x8c\x02os\x8c\x06system\x93."),
            "G-PT-2: it tries to import os.system, which is not allowed");
  EXPECT_EQ(error_of_pickle("\x80\x02"
                            "ctorch.storage\n_load_from_bytes\n."),
            "G-PT-2: it tries to import torch.storage._load_from_bytes, which is not allowed");
  EXPECT_EQ(error_of_pickle("\x80\x02"
                            "ctorch\nFloatStorage\n)R."),
            "G-PT-2: it tries to import torch.FloatStorage as a function, which is not allowed");
}

TEST(TorchFile, RefusesMalformedPickles) {
  const std::string start("\x80\x02", 2);
  EXPECT_EQ(error_of_pickle(start + "N."), "none");
  EXPECT_EQ(error_of_pickle(start + "X" + number(0xFFFFFFFF, 4)).substr(0, 42),
            "G-PT-3: byte 7 of the pickle claims 429496");
  EXPECT_EQ(error_of_pickle(start + "."), "G-PT-3: an empty stack at byte 3 of the pickle");
  EXPECT_EQ(error_of_pickle(start + "NN."),
            "G-PT-3: values are left over at the end of the pickle");
  EXPECT_EQ(error_of_pickle(start + "t."), "G-PT-3: a missing mark at byte 3 of the pickle");
  EXPECT_EQ(error_of_pickle(start + "h\x05."), "G-PT-3: memo 5 is used before it is set");
  EXPECT_EQ(error_of_pickle(start + "}Na."), "G-PT-3: items: expected a list, received a dict");
  EXPECT_EQ(error_of_pickle(start + "}(NNNu."), "G-PT-3: a dict key without a value");
  EXPECT_EQ(error_of_pickle(start + "}NNs."),
            "G-PT-3: a dict whose key is a None, expected text or an integer");
  EXPECT_EQ(error_of_pickle(start + "\x8a\x09"
                                    "123456789."),
            "G-PT-3: an integer of 9 bytes, at most 8 are supported");
  EXPECT_EQ(error_of_pickle(start + "NQ."), "G-PT-3: a storage: expected a tuple, received a None");
  EXPECT_EQ(error_of_pickle(start + "(X" + number(3, 4) + "abcNNNNtQ."),
            "G-PT-3: a persistent id that is not a storage");
  EXPECT_EQ(error_of_pickle(start + "i"),
            "G-PT-3: instruction 0x69 at byte 2 of the pickle is not allowed");
  EXPECT_EQ(error_of_pickle("\x80\x07N."), "G-PT-3: pickle protocol 7, expected 2 to 5");
  EXPECT_EQ(error_of_pickle(start + "ctorch\nSize\n."),
            "G-PT-3: a name of a class or function as a value");
  EXPECT_EQ(error_of_pickle(start + "ctorch._utils\n_rebuild_tensor_v2\n)R."),
            "G-PT-3: a tensor: expected at least 4 arguments, received 0");
}

TEST(TorchFile, RefusesBombs) {
  const std::string start("\x80\x02", 2);
  EXPECT_EQ(error_of_pickle(start + "]q" + number(0, 1) + "h" + number(0, 1) + "a."),
            "G-PT-5: its values are nested more than 100 deep")
      << "a list in itself";
  EXPECT_EQ(error_of_pickle(start + std::string(500'000, ']') + std::string(499'999, 'a') + "."),
            "G-PT-5: its values are nested more than 100 deep");
  std::string laughs = start + "]";
  for (int i = 0; i < 60; ++i)
    laughs += "q" + number(uint64_t(i), 1) + "](h" + number(uint64_t(i), 1) + "h" +
              number(uint64_t(i), 1) + "e";
  EXPECT_EQ(error_of_pickle(laughs + ".").substr(0, 7), "G-PT-3:") << "unfinished";
  laughs = start + "]q" + number(0, 1);
  for (int i = 1; i < 60; ++i)
    laughs += "0](h" + number(uint64_t(i - 1), 1) + "h" + number(uint64_t(i - 1), 1) + "eq" +
              number(uint64_t(i), 1);
  EXPECT_EQ(error_of_pickle(laughs + ".").substr(0, 7), "G-PT-3:")
      << "POP is not an instruction of state dicts";
  laughs = start + "]q" + number(0, 1);
  for (int i = 1; i < 60; ++i)
    laughs += "h" + number(uint64_t(i - 1), 1) + "\x86q" + number(uint64_t(i), 1);
  EXPECT_EQ(error_of_pickle(laughs + ".").substr(0, 45),
            "G-PT-5: its plain values expand to more than ")
      << "2^59 values";
  std::string copies = start + "c_codecs\nencode\nq" + number(0, 1) + "X" + number(1'000'000, 4) +
                       std::string(1'000'000, 'x') + "q" + number(1, 1);
  copies += "X" + number(6, 4) + "latin1\x86q" + number(2, 1) + "R";
  for (int i = 0; i < 1000; ++i) copies += "h" + number(0, 1) + "h" + number(2, 1) + "R";
  EXPECT_EQ(error_of_pickle(copies + ".").substr(0, 7), "G-PT-5:") << "1 GB from 1 MB";
}

TEST(TorchFile, RefusesTensorsThatDoNotFitTheirStorage) {
  const auto file = without_checksums(bytes_of(at::arange(4, at::kFloat).reshape({2, 2})));
  // The writer put: storage length K\4, offset K\0, sizes K\2K\2, strides K\2K\1.
  const std::string geometry("K\4tQK\0K\2K\2\x86K\2K\1\x86", 16);
  const auto at = file.find(geometry);
  ASSERT_NE(at, std::string::npos);
  const auto error = [&](const std::string& changed) -> std::string {
    auto bytes = file;
    bytes.replace(at, changed.size(), changed);
    try {
      read_bytes(bytes);
    } catch (const Error& error) {
      return error.id() + error.message().substr(error.message().find(':'));
    }
    return "none";
  };
  EXPECT_EQ(error(geometry), "none");
  EXPECT_EQ(error(std::string("K\5", 2)),
            "G-PT-4: storage '0' claims 5 elements of Float, it has 16 bytes");
  EXPECT_EQ(error(std::string("K\4tQK\1", 6)),
            "G-PT-4: a tensor of shape [2, 2], strides [2, 1] and offset 1 does not fit storage "
            "'0' of 4 elements");
  EXPECT_EQ(error(std::string("K\4tQK\0K\3", 8)),
            "G-PT-4: a tensor of shape [3, 2], strides [2, 1] and offset 0 does not fit storage "
            "'0' of 4 elements");
  EXPECT_EQ(error(std::string("K\4tQK\0K\2K\2\x86K\xff", 13)).substr(0, 7), "G-PT-4:");
  const auto long_minus =
      std::string("\x8a\x01\xff");  // -1 in place of K\2 and one more byte would move the rest: use
                                    // the offset and first size
  EXPECT_EQ(error(std::string("K\4tQ", 4) + long_minus + "N").substr(0, 7), "G-PT-3:");
}

TEST(TorchFile, ReadsFilesFromBeforeVersion16) {
  const auto tree = read_torch_file(kTorchFiles / "legacy.pt");
  const auto of = [&](const char* name) -> const StateTree& {
    return *tree.find(std::string(name));
  };
  const auto table = at::arange(6, at::kFloat).view({2, 3});
  EXPECT_TRUE(at::equal(of("table").as_tensor(), table));
  EXPECT_TRUE(at::equal(of("turned").as_tensor(), table.t()));
  EXPECT_TRUE(at::equal(of("row").as_tensor(), table[1]));
  EXPECT_TRUE(of("row").as_tensor().is_alias_of(of("table").as_tensor()));
  EXPECT_EQ(of("half").as_tensor().scalar_type(), at::kBFloat16);
  EXPECT_EQ(of("half").as_tensor()[1].item<double>(), -2.0);
  EXPECT_EQ(of("ids").as_tensor().sum().item<int64_t>(), 3);
  EXPECT_EQ(of("none").as_tensor().numel(), 0);
  EXPECT_EQ(of("step").as_int(), 7);
}

TEST(TorchFile, RefusesDamagedFilesFromBeforeVersion16) {
  const auto file = read_file(kTorchFiles / "legacy.pt");
  const auto error = [](std::string bytes) -> std::string {
    try {
      read_bytes(std::move(bytes));
    } catch (const Error& error) {
      return error.id();
    }
    return "none";
  };
  EXPECT_EQ(error(file), "none");
  for (size_t size = 0; size < file.size(); size += 3)
    EXPECT_EQ(error(file.substr(0, size)).substr(0, 5), "G-PT-") << size;
  auto longer = file;
  const auto six = longer.rfind(
      std::string("\6\0\0\0\0\0\0\0", 8));  // the number of elements before the table's bytes
  ASSERT_NE(six, std::string::npos);
  longer[six] = 7;
  EXPECT_EQ(error(longer), "G-PT-1");
  auto imports = file;
  const auto name = imports.find("torch\nFloatStorage");
  ASSERT_NE(name, std::string::npos);
  imports.replace(name, 5, "posix");
  EXPECT_EQ(error(imports), "G-PT-2");
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {  // whatever is damaged: an error of ours, or other values
    auto damaged = file;
    for (int k = 0; k < 1 + i % 3; ++k)
      damaged[15 + random() % (file.size() - 15)] = static_cast<char>(random());
    const auto id = error(damaged);
    EXPECT_TRUE(id == "none" || id.starts_with("G-PT-")) << id;
  }
  auto reversed = file;
  const auto order = reversed.find("little_endian");
  ASSERT_NE(order, std::string::npos);
  const auto flag = reversed.find('\x88', order);
  reversed[flag] = '\x89';
  EXPECT_EQ(error(reversed), "G-PT-1");
}

TEST(TorchFile, RefusesDamagedArchives) {
  const auto file = bytes_of(at::arange(4, at::kFloat));
  const auto error = [](std::string bytes) -> std::string {
    try {
      read_bytes(std::move(bytes));
    } catch (const Error& error) {
      return error.id() + error.message().substr(error.message().find(':'));
    }
    return "none";
  };
  EXPECT_EQ(error(""), "G-PT-1: it is not a zip archive, or its end is missing");
  EXPECT_EQ(error(std::string("\x80\x02K\x01.", 5)),
            "G-PT-1: it is a bare pickle, not a file of torch.save");
  for (size_t size = 0; size < file.size(); size += 7)
    EXPECT_EQ(error(file.substr(0, size)).substr(0, 7), "G-PT-1:") << size;
  auto compressed = file;
  compressed[file.find("PK\1\2") + 10] = 8;
  EXPECT_EQ(error(compressed),
            "G-PT-1: entry 'archive/data.pkl' is compressed or encrypted, torch.save stores "
            "entries as they are");
  auto moved = file;
  moved[file.find("PK\1\2") + 42] = 1;
  EXPECT_EQ(error(moved),
            "G-PT-1: entry 'archive/data.pkl' does not begin where the directory says");
  auto renamed = file;
  for (auto at = renamed.find("data.pkl"); at != std::string::npos; at = renamed.find("data.pkl"))
    renamed.replace(at, 8, "date.pkl");
  EXPECT_EQ(error(renamed), "G-PT-1: the archive has no data.pkl");
  auto lost = file;
  for (auto at = lost.find("data/0"); at != std::string::npos; at = lost.find("data/0"))
    lost.replace(at, 6, "data/1");
  EXPECT_EQ(error(lost), "G-PT-1: storage '0' is missing");
}

TEST(TorchFile, RefusesContentThatDoesNotMatchItsChecksum) {
  const auto error = [](std::string bytes) -> std::string {
    try {
      read_bytes(std::move(bytes));
    } catch (const Error& error) {
      return error.id() + error.message().substr(error.message().find(':'));
    }
    return "none";
  };
  const auto tensor = at::arange(100, 104, at::kFloat);
  auto file = bytes_of(tensor);
  const auto at = file.find(std::string(static_cast<const char*>(tensor.const_data_ptr()), 16));
  ASSERT_NE(at, std::string::npos);
  file[at] ^= 4;
  EXPECT_EQ(error(file), "G-PT-1: the checksum of storage '0' does not match");
  EXPECT_EQ(error(without_checksums(file)), "none")
      << "PyTorch leaves checksums out when it is told so";
  auto pickle = bytes_of(StateTree("a text"));
  pickle[pickle.find("a text")] = 'b';
  EXPECT_EQ(error(pickle), "G-PT-1: the checksum of data.pkl does not match");
}

TEST(RngState, ReadsPythonsAndWritesItBack) {
  const auto state = read_rng_state(kTorchFiles / "rng_state.pth");
  EXPECT_EQ(state.cpu.numel(), 5056);
  EXPECT_TRUE(state.cuda.empty());
  EXPECT_EQ(text_of(state.python), text_of(python_random_state(42)));
  EXPECT_EQ(text_of(state.numpy), text_of(numpy_random_state(42)));
  const auto file = temporary("rng_state.pth");
  auto changed = state;
  changed.cuda = {at::ones({16}, at::kByte), at::zeros({16}, at::kByte)};
  changed.cuda_as_list = true;
  const auto written = write_rng_state(file, changed);
  EXPECT_EQ(written, file_checksum(file));
  const auto back = read_rng_state(file);
  EXPECT_TRUE(at::equal(back.cpu, state.cpu));
  EXPECT_EQ(text_of(back.python), text_of(state.python));
  EXPECT_EQ(text_of(back.numpy), text_of(state.numpy));
  EXPECT_TRUE(back.cuda_as_list);
  EXPECT_TRUE(at::equal(back.cuda.at(1), changed.cuda[1]));
  changed.cuda.pop_back();
  changed.cuda_as_list = false;
  write_rng_state(file, changed);
  EXPECT_FALSE(read_rng_state(file).cuda_as_list);
  EXPECT_TRUE(at::equal(read_rng_state(file).cuda.at(0), changed.cuda[0]));
}

TEST(RngState, SeedsLikePythonAndNumpy) {
  const auto expected = read_json(kTorchFiles / "mersenne_seeds.json");
  const auto summary = [](const std::vector<StateTree>& words) {
    int64_t sum = 0;
    for (size_t i = 0; i < 624; ++i) sum += words[i].as_int();
    return nlohmann::json{words[0].as_int(), words[1].as_int(), words[622].as_int(),
                          words[623].as_int(), sum};
  };
  ASSERT_EQ(expected.size(), 5u);
  for (const auto& [seed, states] : expected.items()) {
    EXPECT_EQ(summary(python_random_state(std::stoull(seed)).items()[1].items()), states["python"])
        << seed;
    EXPECT_EQ(summary(numpy_random_state(std::stoull(seed)).items()[1].items()), states["numpy"])
        << seed;
  }
}

TEST(RngState, RefusesWhatPythonWouldNotTake) {
  const auto error = [](const RngState& state) -> std::string {
    try {
      write_rng_state(temporary("bad_rng.pth"), state);
    } catch (const Error& error) {
      return error.id() + error.message().substr(error.message().find(':'));
    }
    return "none";
  };
  const RngState good{.cpu = at::zeros({16}, at::kByte),
                      .cuda = {},
                      .python = python_random_state(1),
                      .numpy = numpy_random_state(1)};
  EXPECT_EQ(error(good), "none");
  auto bad = good;
  bad.cpu = torch::Tensor();
  EXPECT_EQ(error(bad), "G-RNG-1: 'cpu' is not set");
  bad = good;
  bad.python = StateTree();
  EXPECT_EQ(error(bad), "G-RNG-1: 'python' is not what random.getstate() returns");
  bad = good;
  bad.numpy = Tuple{{"MT19937", at::zeros({3}), 1, 0, 0.0}};
  EXPECT_EQ(error(bad), "G-RNG-1: 'numpy' is not what np.random.get_state() returns");
  EXPECT_THROW(read_rng_state(kTorchFiles / "scaler.pt"), Error);
}

}  // namespace
}  // namespace gradus
