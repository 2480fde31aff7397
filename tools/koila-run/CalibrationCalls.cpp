//===- CalibrationCalls.cpp - Programs that are one operator --------------===//

#include "CalibrationCalls.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"

using namespace koila::run;
using llvm::StringRef;

/// Replaces each `{...}`.
static std::string fill(StringRef text, const llvm::StringMap<int> &numbers,
                        StringRef dtype, StringRef flag) {
  // A name that was drawn, or a number as it stands.
  auto evaluate = [&](StringRef name) {
    int number = 0;
    return name.getAsInteger(10, number) ? numbers.lookup(name) : number;
  };
  std::string filled;
  while (!text.empty()) {
    auto [before, rest] = text.split('{');
    filled += before;
    if (rest.empty())
      break;
    auto [name, after] = rest.split('}');
    if (name == "T")
      filled += dtype;
    else if (name == "F")
      filled += flag;
    else if (name == "L" || name == "R")
      filled += name == "L" ? '{' : '}';
    else {
      auto [lhs, rhs] = name.split('*');
      filled +=
          std::to_string(evaluate(lhs) * (rhs.empty() ? 1 : evaluate(rhs)));
    }
    text = after;
  }
  return filled;
}

CalibrationCall CalibrationFamily::draw(size_t index, const std::string &dtype,
                                        const std::string &format,
                                        std::mt19937_64 &rng) const {
  bool channelsLast = format == "channels_last";
  std::vector<const Template *> fitting;
  for (const Template &entry : templates)
    if (entry.hasFormat || !channelsLast)
      fitting.push_back(&entry);
  const Template &chosen = *fitting[index % fitting.size()];
  llvm::StringMap<int> numbers;
  for (const auto &[name, values] : chosen.draws)
    numbers[name] = values[rng() % values.size()];
  StringRef flag = channelsLast ? "@channels_last" : "";
  CalibrationCall call;
  call.source = fill(chosen.source, numbers, dtype, flag);
  for (const char *input : chosen.inputs)
    call.inputs.push_back(fill(input, numbers, dtype, flag));
  return call;
}

/// Channels, extents and windows of images.
static const std::vector<int> kChannels = {1, 3, 4, 8, 12, 16, 24, 32, 64},
                              kSides = {7, 8, 14, 17, 28, 32, 56},
                              kKernels = {1, 1, 2, 3, 3, 3, 5, 7},
                              kWindows = {2, 3}, kSteps = {1, 1, 2},
                              kPads = {0, 1, 1}, kGroups = {1, 1, 1, 2, 4};

static CalibrationFamily makeConvolutions() {
  return {{"aten::conv*", "aten::_conv*"},
          {"float32", "float64"},
          {"contiguous", "channels_last"},
          {{R"(def forward(self, x, w):
  return torch.conv2d(x, w, None, [{s}, {s}], [{p}, {p}], [1, 1], {g})
)",
            {"{T}[B,{g*i},{h},{v}]{F}", "{T}[{g*o},{i},{k},{k}]"},
            {{"g", kGroups},
             {"i", kChannels},
             {"o", kChannels},
             {"h", kSides},
             {"v", kSides},
             {"k", kKernels},
             {"s", kSteps},
             {"p", kPads}},
            true},
           {R"(def forward(self, x, w, b):
  return torch.conv2d(x, w, b, [1, 1], [1, 1], [1, 1], {g})
)",
            {"{T}[B,{g},{h},{v}]{F}", "{T}[{g},1,3,3]", "{T}[{g}]"},
            {{"g", {8, 16, 32, 96}}, {"h", kSides}, {"v", kSides}},
            true},
           {R"(def forward(self, x, w, b):
  return torch.conv1d(x, w, b, [{s}], [{p}])
)",
            {"{T}[B,{i},{l}]", "{T}[{o},{i},{k}]", "{T}[{o}]"},
            {{"i", kChannels},
             {"o", kChannels},
             {"l", {16, 50, 128}},
             {"k", kKernels},
             {"s", kSteps},
             {"p", kPads}}},
           {R"(def forward(self, x, w):
  return torch.conv3d(x, w, None, [{s}, {s}, {s}], [{p}, {p}, {p}])
)",
            {"{T}[B,{i},{d},{h},{h}]", "{T}[{o},{i},{k},{k},{k}]"},
            {{"i", {1, 3, 8, 16}},
             {"o", {4, 8, 16}},
             {"d", {4, 7}},
             {"h", {8, 14}},
             {"k", {1, 2, 3}},
             {"s", kSteps},
             {"p", kPads}}},
           {R"(def forward(self, x, w):
  return torch.conv_transpose2d(x, w, None, [{s}, {s}], [{p}, {p}])
)",
            {"{T}[B,{i},{h},{h}]{F}", "{T}[{i},{o},{k},{k}]"},
            {{"i", kChannels},
             {"o", kChannels},
             {"h", {7, 8, 14}},
             {"k", {2, 3, 4}},
             {"s", {1, 2}},
             {"p", {0, 1}}},
            true}}};
}

static CalibrationFamily makeProducts() {
  const std::vector<int> extents = {1, 5, 16, 33, 64, 100};
  return {{"aten::linear", "aten::mm", "aten::bmm", "aten::matmul",
           "aten::addmm", "aten::baddbmm", "aten::einsum"},
          {"float32", "float64", "bfloat16"},
          {"contiguous"},
          {{R"(def forward(self, x, w, b):
  return torch.linear(x, w, b)
)",
            {"{T}[B,{n},{i}]", "{T}[{o},{i}]", "{T}[{o}]"},
            {{"n", extents}, {"i", extents}, {"o", extents}}},
           {R"(def forward(self, x, w):
  return torch.matmul(x.transpose(1, 2), w)
)",
            {"{T}[B,{i},{n}]", "{T}[{i},{o}]"},
            {{"n", extents}, {"i", extents}, {"o", extents}}},
           {R"(def forward(self, x, y):
  return torch.einsum("bik,bjk->bij", [x, y])
)",
            {"{T}[B,{n},{i}]", "{T}[B,{o},{i}]"},
            {{"n", extents}, {"i", extents}, {"o", extents}}}}};
}

static CalibrationFamily makeAttention() {
  return {{"aten::scaled_dot_product_attention", "aten::_scaled_dot_product*"},
          {"float32", "bfloat16", "float16"},
          {"contiguous"},
          {{R"(def forward(self, q, k, v):
  return torch.scaled_dot_product_attention(q, k, v)
)",
            {"{T}[B,{h},{n},{d}]", "{T}[B,{h},{m},{d}]", "{T}[B,{h},{m},{d}]"},
            {{"h", {1, 2, 3, 8}},
             {"n", {1, 10, 49, 64, 197, 300}},
             {"m", {1, 10, 49, 64, 197, 600}},
             {"d", {8, 16, 32, 64}}}}}};
}

static CalibrationFamily makeLstm() {
  return {{"aten::lstm"},
          {"float32"},
          {"contiguous"},
          {{R"(def forward(self, x, h, c, w, u, b, d):
  return torch.lstm(x, [h, c], [w, u, b, d], True, 1, 0.0, False, False, True)
)",
            {"{T}[B,{n},{i}]", "{T}[1,B,{o}]", "{T}[1,B,{o}]", "{T}[{4*o},{i}]",
             "{T}[{4*o},{o}]", "{T}[{4*o}]", "{T}[{4*o}]"},
            {{"n", {1, 3, 10, 25}},
             {"i", {3, 8, 16, 33, 64}},
             {"o", {4, 16, 24, 32, 65, 128}}}}}};
}

static CalibrationFamily makeTransforms() {
  return {{"aten::fft_*", "aten::stft", "aten::istft"},
          {"float32", "float64"},
          {"contiguous"},
          {{R"(def forward(self, x):
  return torch.fft_rfft(x)
)",
            {"{T}[B,{n},{m}]"},
            {{"n", {1, 4, 16}}, {"m", {8, 15, 64, 100}}}},
           {R"(def forward(self, x):
  return torch.fft_fft2(x)
)",
            {"{T}[B,{n},{m}]"},
            {{"n", {1, 4, 16}}, {"m", {8, 15, 64, 100}}}}}};
}

/// What PyTorch's own kernels hold: normalisations, reductions, pools, indices
/// and pointwise operators. They are measured to see that nothing has changed.
static CalibrationFamily makeOthers() {
  const std::vector<int> rows = {1, 5, 16, 33, 100, 1000};
  return {{"*"},
          {"float32", "float64", "int64"},
          {"contiguous"},
          {{R"(def forward(self, x, w, b):
  return torch.layer_norm(x, [{m}], w, b)
)",
            {"{T}[B,{n},{m}]", "{T}[{m}]", "{T}[{m}]"},
            {{"n", rows}, {"m", {8, 33, 64}}}},
           {R"(def forward(self, x, m, v):
  return torch.batch_norm(x, None, None, m, v, False, 0.1, 1e-5, True)
)",
            {"{T}[B,{c},{h},{h}]", "{T}[{c}]", "{T}[{c}]"},
            {{"c", kChannels}, {"h", kSides}}},
           {R"(def forward(self, x):
  return torch.group_norm(x, {g})
)",
            {"{T}[B,{g*i},{h},{h}]"},
            {{"g", {1, 2, 4}}, {"i", {1, 3, 8}}, {"h", kSides}}},
           {R"(def forward(self, x):
  return torch.softmax(x, {d})
)",
            {"{T}[B,{n},{m}]"},
            {{"d", {1, 2}}, {"n", rows}, {"m", {8, 33, 64}}}},
           {R"(def forward(self, x):
  return torch.mean(x, [{d}])
)",
            {"{T}[B,{n},{m}]"},
            {{"d", {0, 1, 2}}, {"n", rows}, {"m", {8, 33, 64}}}},
           {R"(def forward(self, x):
  return torch.max_pool2d(x, [{k}, {k}], [{s}, {s}])
)",
            {"{T}[B,{c},{h},{h}]"},
            {{"c", kChannels}, {"h", kSides}, {"k", kWindows}, {"s", kSteps}}},
           {R"(def forward(self, x):
  return torch.adaptive_avg_pool2d(x, [{k}, {k}])
)",
            {"{T}[B,{c},{h},{h}]"},
            {{"c", kChannels}, {"h", kSides}, {"k", {1, 2, 7}}}},
           {R"(def forward(self, x):
  return torch.upsample_bilinear2d(x, [{h}, {v}], False)
)",
            {"{T}[B,{c},{i},{i}]"},
            {{"c", kChannels}, {"h", kSides}, {"v", kSides}, {"i", {7, 16}}}},
           {R"(def forward(self, x):
  return torch.topk(x, {k})
)",
            {"{T}[B,{n}]"},
            {{"k", {1, 3}}, {"n", {5, 100, 1000}}}},
           {R"(def forward(self, x):
  return torch.cumsum(x, {d})
)",
            {"{T}[B,{n},{m}]"},
            {{"d", {0, 1, 2}}, {"n", rows}, {"m", {8, 33}}}},
           {R"(def forward(self, x, y):
  return torch.cat([x, y.transpose(1, 2)], 0)
)",
            {"{T}[B,{n},{m}]", "{T}[B,{m},{n}]"},
            {{"n", rows}, {"m", {8, 33}}}},
           {R"(def forward(self, x, i):
  return torch.embedding(x, i)
)",
            {"{T}[{n},{m}]", "int64[B,{k}]{L}0:{n}{R}"},
            {{"n", rows}, {"m", {8, 33}}, {"k", {1, 7, 50}}}},
           {R"(def forward(self, x, y):
  return torch.where(x > y, x * 2, torch.gelu(y))
)",
            {"{T}[B,{n}]", "{T}[B,{n}]"},
            {{"n", rows}}}}};
}

const std::vector<CalibrationFamily> &koila::run::getCalibrationFamilies() {
  static const std::vector<CalibrationFamily> families = {
      makeConvolutions(), makeProducts(),   makeAttention(),
      makeLstm(),         makeTransforms(), makeOthers()};
  return families;
}
