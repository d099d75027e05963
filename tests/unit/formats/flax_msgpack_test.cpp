#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/formats/flax_msgpack.h>
#include <gtest/gtest.h>

#include "../../fuzz/mutator.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;

std::string fixture(const std::string& name) {
  return read_file(fs::path(GRADUS_SOURCE_DIR) / "tests/parity/functional" / name);
}

/// The text of the error that `bytes` give.
std::string message(std::string_view bytes) {
  try {
    parse_flax_msgpack(bytes, "a.msgpack");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

void expect_has(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(FlaxMsgpack, WritesWhatFlaxWroteByteForByte) {
  for (const auto* name : {"tree.msgpack", "opt_state.msgpack"}) {
    const auto bytes = fixture(name);
    EXPECT_EQ(flax_msgpack_bytes(parse_flax_msgpack(bytes)), bytes) << name;
  }
  const auto chunked = fixture("chunked.msgpack");
  EXPECT_EQ(flax_msgpack_bytes(parse_flax_msgpack(chunked), {.max_chunk_size = 64}), chunked);
}

TEST(FlaxMsgpack, ReadsArraysOfEveryDtype) {
  const auto tree = parse_flax_msgpack(fixture("tree.msgpack"));
  EXPECT_EQ(tree.at("dtypes").entries().size(), 20u);
  for (const auto& [name, value] : tree.at("dtypes").entries()) {
    if (name == "float8_e8m0fnu") continue;  // powers of two only: it has no zero
    const auto& array = value.tensor();
    EXPECT_TRUE(at::equal((array.is_complex() ? torch::real(array) : array).to(at::kFloat),
                          torch::tensor({0.0f, 1.0f, 1.0f, 1.0f, 0.0f, 1.0f}).reshape({2, 3})))
        << name;
  }
  const auto& bias = tree.at("params").at("dense").at("bias").tensor();
  EXPECT_EQ(bias.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::equal(bias.to(at::kFloat), torch::tensor({1.5f, -2.0f, 3.0f})));
  EXPECT_EQ(tree.at("params").at("empty").tensor().sizes(), (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(tree.at("numpy").at("int64").tensor().item<int64_t>(), -5);
  EXPECT_EQ(std::get<std::complex<double>>(tree.at("plain").at("complex").value()),
            std::complex<double>(1, -2.5));
}

TEST(FlaxMsgpack, PutsChunksTogether) {
  const auto tree = parse_flax_msgpack(fixture("chunked.msgpack"));
  EXPECT_TRUE(
      at::equal(tree.at("a").at("big").tensor(), at::arange(100, at::kInt).reshape({4, 25})));
}

TEST(FlaxMsgpack, WritesViewsAndFiles) {
  auto tree = FlaxTree::dict();
  tree.set("t", at::arange(6, at::kFloat).reshape({2, 3}).t());
  const auto file = fs::path(testing::TempDir()) / "gradus_flax.msgpack";
  const auto written = write_flax_msgpack(file, tree);
  EXPECT_EQ(file_checksum(file), written);
  EXPECT_TRUE(at::equal(read_flax_msgpack(file).at("t").tensor(), tree.at("t").tensor()));
  tree.set("t", torch::Tensor());
  EXPECT_THROW(flax_msgpack_bytes(tree), Error);
}

TEST(FlaxMsgpack, RefusesLengthsThatAreNotThere) {
  expect_has(message(std::string("\x81\xA1w\xC6\xFF\xFF\xFF\xFF", 8)),
             "at byte 8 ('w'), a byte string needs 4294967295 bytes, 0 are left [G-FLAX-1]");
  expect_has(message(std::string("\xDF\xFF\xFF\xFF\xFF", 5)),
             "a dictionary of 4294967295 entries needs 8589934590 bytes or more, 0 are left");
  expect_has(message(std::string("\xDD\xFF\xFF\xFF\xFF", 5)), "a list of 4294967295 entries");
  expect_has(message(std::string("\xC9\xFF\xFF\xFF\xFF\x01", 6)),
             "an array needs 4294967295 bytes, 0 are left");
  expect_has(message(""), "a value needs 1 bytes, 0 are left");
  expect_has(message("\xC1"), "the byte 0xc1 begins no value");
  expect_has(message(std::string(1000, '\x91')), "nested more than 200 deep");
  expect_has(message(std::string("\xC0\xC0", 2)), "1 bytes follow the end of the tree");
}

/// {"w": ext 1 [shape, "float32", 4 bytes]}
std::string array_of_shape(const std::string& shape) {
  const auto payload = "\x93" + shape +
                       "\xA7"
                       "float32" +
                       std::string(
                           "\xC4\x04"
                           "\0\0\0\0",
                           6);
  return std::string("\x81\xA1w\xC7") + char(payload.size()) + '\x01' + payload;
}

TEST(FlaxMsgpack, RefusesShapesThatDoNotFit) {
  EXPECT_EQ(message(array_of_shape("\x91\x01")), "no error");
  expect_has(message(array_of_shape("\x91\x05")),
             "cannot read a.msgpack: array 'w' of shape [5] and dtype Float needs 20 bytes, it has "
             "4 [G-FLAX-2]");
  expect_has(message(array_of_shape("\x91\xCE\xA0\x00\x00\x00"s)),
             "needs 10737418240 bytes, it has 4");
  expect_has(message(array_of_shape("\x91\xFF")), "has a size of -1 in its shape");
  const std::string huge = "\xD3\x40" + std::string(7, '\0');
  expect_has(message(array_of_shape("\x93\x00"s + huge + huge)), "more than any memory");
  expect_has(message(array_of_shape("\x91\xA1x")), "has a shape with a text in it");
  auto other = array_of_shape("\x91\x01");
  other.replace(other.find("float32"), 7, "float99");
  expect_has(message(other),
             "has dtype 'float99', which torch does not have; expected one of bool, int8");
}

TEST(FlaxMsgpack, NoCutAndNoMutationCrashes) {
  std::vector<std::string> corpus;
  for (const auto* name : {"tree.msgpack", "opt_state.msgpack", "chunked.msgpack"})
    corpus.push_back(fixture(name));
  for (const auto& bytes : corpus)
    for (size_t cut = 0; cut < bytes.size(); ++cut)
      ASSERT_THROW(parse_flax_msgpack(std::string_view(bytes).substr(0, cut)), Error) << cut;
  fuzz::Mutator mutator(7);
  for (int i = 0; i < 20'000; ++i) message(mutator.next(corpus));
}

TEST(FlaxTree, NamesWhatIsThere) {
  auto tree = FlaxTree::dict();
  tree.set("a", 1);
  try {
    tree.at("b");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), "the Flax tree has no 'b'; there are 'a'");
  }
  try {
    tree.at("a").tensor();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), "the Flax tree has a int where an array is expected");
  }
}

}  // namespace
}  // namespace gradus
