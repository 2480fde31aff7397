//===- InputSpecTest.cpp - What a user may write after --input ------------===//

#include "koila/InputSpec/InputSpec.h"
#include "gtest/gtest.h"
#include <limits>

using namespace koila;

static InputSpec parse(llvm::StringRef text) {
  InputSpec spec;
  std::string error;
  EXPECT_TRUE(parseInputSpec(text, spec, error)) << error;
  return spec;
}

static std::string parseError(llvm::StringRef text) {
  InputSpec spec;
  std::string error;
  EXPECT_FALSE(parseInputSpec(text, spec, error)) << text.str();
  return error;
}

TEST(InputSpecTest, TensorWithNameAndSymbol) {
  InputSpec spec = parse("x=float32[B,3,224,224]");
  EXPECT_EQ(spec.name, "x");
  EXPECT_EQ(spec.kind, InputSpec::Kind::Tensor);
  EXPECT_EQ(spec.dtype, "float32");
  ASSERT_EQ(spec.dims.size(), 4u);
  EXPECT_EQ(spec.dims[0].symbol, "B");
  EXPECT_EQ(spec.dims[0].factor, 1);
  EXPECT_FALSE(spec.dims[0].pinned.has_value());
  EXPECT_TRUE(spec.dims[1].isConstant());
  EXPECT_EQ(spec.dims[3].factor, 224);
}

TEST(InputSpecTest, PositionalStaticBatchIsNoName) {
  // The '=' belongs to the dim, not to a name.
  InputSpec spec = parse("float32[B=64,3,32,32]");
  EXPECT_TRUE(spec.name.empty());
  EXPECT_EQ(spec.dims[0].pinned, 64);
}

TEST(InputSpecTest, MultiplesOfTheBatch) {
  InputSpec spec = parse("edges=int64[2, 3 * B]{0:2*B}");
  EXPECT_EQ(spec.dims[1].factor, 3);
  EXPECT_EQ(spec.dims[1].symbol, "B");
  ASSERT_TRUE(spec.range.has_value());
  EXPECT_EQ(spec.range->from.factor, 0);
  EXPECT_EQ(spec.range->to.factor, 2);
  EXPECT_EQ(spec.range->to.symbol, "B");
}

TEST(InputSpecTest, FlagsInEitherOrder) {
  for (const char *text : {"float32[B,3,8,8]@grad@channels_last",
                           "float32[B,3,8,8]@channels_last@grad"}) {
    InputSpec spec = parse(text);
    EXPECT_TRUE(spec.requiresGrad);
    EXPECT_TRUE(spec.channelsLast);
  }
}

TEST(InputSpecTest, ScalarTensorHasNoDims) {
  EXPECT_TRUE(parse("t=float64[]").dims.empty());
}

TEST(InputSpecTest, TorchsOtherNames) {
  EXPECT_EQ(parse("long[B]").dtype, "int64");
  EXPECT_EQ(parse("torch.half[B]").dtype, "float16");
}

TEST(InputSpecTest, Literals) {
  EXPECT_EQ(parse("mask=none").kind, InputSpec::Kind::None);
  EXPECT_TRUE(parse("flag=true").boolValue);
  EXPECT_FALSE(parse("False").boolValue);
  EXPECT_EQ(parse("n=-7").intValue, -7);
  EXPECT_EQ(parse("n=-7").kind, InputSpec::Kind::Int);
  EXPECT_DOUBLE_EQ(parse("scale=1e-3").floatValue, 1e-3);
  EXPECT_EQ(parse("mode='it\\'s'").stringValue, "it's");
  EXPECT_EQ(parse("mode=\"a=b\"").name, "mode");
}

TEST(InputSpecTest, Containers) {
  InputSpec list = parse("xs=[float32[B,3],float32[B,3]]");
  EXPECT_EQ(list.kind, InputSpec::Kind::List);
  ASSERT_EQ(list.elements.size(), 2u);
  EXPECT_EQ(list.elements[1].dims[0].symbol, "B");

  InputSpec pair = parse("(float32[B,4],(1,none,))");
  EXPECT_EQ(pair.kind, InputSpec::Kind::Tuple);
  EXPECT_EQ(pair.elements[1].elements[1].kind, InputSpec::Kind::None);

  InputSpec dict = parse("{'image':float32[B,3],label:int64[B]}");
  EXPECT_EQ(dict.kind, InputSpec::Kind::Dict);
  EXPECT_EQ(dict.keys[0].stringValue, "image");
  EXPECT_EQ(dict.keys[1].stringValue, "label");
  EXPECT_EQ(dict.elements[1].dtype, "int64");

  EXPECT_TRUE(parse("[]").elements.empty());
}

TEST(InputSpecTest, PrintsWhatItRead) {
  for (const char *text :
       {"int64[20,4*B]{0:50}", "float32[B=64,3,8,8]@channels_last@grad",
        "[float32[B],none]", "{\"a\":(1,true)}", "int64[B]{-3:2*B}"})
    EXPECT_EQ(parse(text).str(), text);
}

TEST(InputSpecTest, NamesArgumentsWithGradients) {
  EXPECT_EQ(getGradientArguments({}), "");
  EXPECT_EQ(getGradientArguments({parse("float32[B]"), parse("3")}), "");
  // By position, and by name.
  EXPECT_EQ(
      getGradientArguments({parse("int64[B]"), parse("float32[B]@grad"),
                            parse("w=float32[B]@grad"), parse("x=float32[B]")}),
      "1,w");
}

/// Expects each text to be refused with `message in 'TEXT'`.
static void
expectErrors(std::initializer_list<std::pair<const char *, std::string>> all) {
  for (const auto &[text, message] : all)
    EXPECT_EQ(parseError(text), message + " in '" + text + "'");
}

TEST(InputSpecTest, ErrorsNameThePlace) {
  EXPECT_EQ(parseError(""),
            "an empty input; write for example 'x=float32[B,3,224,224]'");
  expectErrors({
      {"x=", "expected a tensor such as float32[B,3] or a literal at the end"},
      {"x=!", "unexpected '!'"},
      {"float32[B,3] junk", "unexpected 'junk' after the value"},
      {"x=float32", "expected '[' and dims after 'float32'"},
      {"x=hello", "'hello' is no literal (put a string in quotes; a tensor is "
                  "a dtype and dims, as float32[B,3])"},
      {"99999999999999999999", "'99999999999999999999' does not fit in 64 "
                               "bits"},
      {"-1.5.0", "'-1.5.0' is no number"},
      {"mode='abc", "expected a closing '"},
      {"mode=\"abc", "expected a closing \""},
  });
}

TEST(InputSpecTest, ErrorsInDims) {
  EXPECT_EQ(parseError("x=flot32[B]").substr(0, 53),
            "unknown dtype 'flot32' (known: float32, float64, floa");
  expectErrors({
      {"float32[B,64", "expected ']' after dim 2"},
      {"float32[B,]", "expected a number or symbol as dim 2, found ']'"},
      {"float32[2*]", "expected a symbol after '*' as dim 1, found ']'"},
      {"float32[-1,3]", "dim 1 is negative; an extent is a number or a symbol "
                        "such as B"},
      {"float32[?,3]", "dim 1 is '?'; give it a name, such as B"},
      {"float32[3,0*B]", "dim 2 has the factor 0"},
      {"float32[B=]", "expected a number as the value of 'B', found ']'"},
      {"float32[99999999999999999999]",
       "'99999999999999999999' is too large for dim 1"},
  });
}

TEST(InputSpecTest, ErrorsInRanges) {
  expectErrors({
      {"int64[B]{", "expected an integer or a symbol in the range {LO:HI}, "
                    "found the end"},
      {"int64[B]{0}", "expected ':' in the range {LO:HI}, found '}'"},
      {"int64[B]{0:5", "expected '}' after the range, found the end"},
      {"int64[B]{5:5}", "the range {5:5} is empty (the upper end is "
                        "exclusive)"},
      {"int64[B]{0:99999999999999999999}",
       "'99999999999999999999' is too large for an end of the range"},
  });
}

TEST(InputSpecTest, ErrorsInContainers) {
  expectErrors({
      {"[1, 2", "expected ',' or ']' after element 2"},
      {"(1 2)", "expected ',' or ')' after element 1"},
      {"{1.5: 2}", "a key is a string or an integer; key 1 is neither"},
      {"{a: 1, b}", "expected ':' after key 2"},
      {"{a: 1 b: 2}", "expected ',' or '}' after entry 1"},
  });
}

TEST(InputSpecTest, RefusesWhatTorchWouldRefuse) {
  expectErrors({
      {"x=float32[B]@gard",
       "unknown flag '@gard' (known: @channels_last, @grad)"},
      {"float32[B,3]@channels_last", "@channels_last needs four dims, found 2"},
      {"int64[B]@grad", "only floating point tensors can require grad: @grad"},
  });
}

TEST(InputSpecTest, DeepNestingIsAnErrorNotACrash) {
  std::string text(100000, '[');
  EXPECT_EQ(parseError(text),
            "lists are nested deeper than 64 in '" + text + "'");
}

TEST(BatchValueTest, NameAndPositiveNumber) {
  std::string error;
  auto value = parseBatchValue("B=64", error);
  ASSERT_TRUE(value.has_value());
  EXPECT_EQ(value->first, "B");
  EXPECT_EQ(value->second, 64);
  for (const char *text : {"64", "B", "B=", "B=x", "=4", "2B=4"}) {
    EXPECT_FALSE(parseBatchValue(text, error).has_value()) << text;
    EXPECT_NE(error.find("as B=64"), std::string::npos) << text;
  }
  EXPECT_FALSE(parseBatchValue("B=0", error).has_value());
  EXPECT_NE(error.find("at least 1"), std::string::npos);
}

TEST(ByteSizeTest, Units) {
  std::string error;
  EXPECT_EQ(parseByteSize("512", error), 512);
  EXPECT_EQ(parseByteSize("64KiB", error), 65536);
  EXPECT_EQ(parseByteSize("64MiB", error), 64ll << 20);
  EXPECT_EQ(parseByteSize("1.5GiB", error), 3ll << 29);
  EXPECT_EQ(parseByteSize("2GB", error), 2000000000);
  EXPECT_EQ(parseByteSize("2 gb", error), 2000000000);
  EXPECT_EQ(parseByteSize("0.1GB", error), 100000000);
  EXPECT_EQ(parseByteSize("0.1KiB", error), 102);
  EXPECT_EQ(parseByteSize("9223372036854775807", error),
            std::numeric_limits<int64_t>::max());
}

TEST(ByteSizeTest, RefusesWithTheWayOut) {
  std::string error;
  for (auto [text, message] :
       {std::pair{"auto", "a number of bytes is wanted here, for example 6GiB"},
        {"-1", "a size is not negative"},
        {"9223372036854775808", "is more bytes than fit in 63 bits"},
        {"99999999999TiB", "is more bytes than fit in 63 bits"},
        {"64MX", "unknown unit 'MX'; known: KiB, MiB, GiB, TiB, KB, MB, GB, "
                 "TB"},
        {"64M", "the unit 'M' is ambiguous; write MiB for powers of 1024 or MB "
                "for powers of 1000"},
        {"1.5", "is not a whole number of bytes; give a unit, for example "
                "1.5MiB"},
        {"MiB", "write a number with an optional unit, for example 512, 64KiB, "
                "1.5GiB or 2GB"},
        {"", "write a number with an optional unit, for example 512, 64KiB, "
             "1.5GiB or 2GB"},
        {"1.MiB", "expected digits after '.'; write a number with an optional "
                  "unit, for example 512, 64KiB, 1.5GiB or 2GB"}}) {
    EXPECT_FALSE(parseByteSize(text, error).has_value()) << text;
    EXPECT_EQ(error, std::string("'") + text + "': " + message);
  }
}

TEST(ByteSizeTest, Formats) {
  EXPECT_EQ(formatBytes(512), "512 bytes");
  EXPECT_EQ(formatBytes(82208768), "78.40 MiB (82,208,768 bytes)");
  EXPECT_EQ(formatBytesShort(82208768), "78.40 MiB");
  EXPECT_EQ(formatBytesShort(1024), "1.00 KiB");
  EXPECT_EQ(formatBytesShort((1ll << 30) - 1), "1.00 GiB");
  EXPECT_EQ(formatBytes(-2048), "-2.00 KiB (-2,048 bytes)");
}
