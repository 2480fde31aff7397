//===- Pickle.cpp - Pickles read without building anything ----------------===//
//
// LibTorch's unpickler trusts its input: a number that a pickle makes up
// becomes the size of a table or of a tensor, and deep nesting becomes deep
// recursion when the values are freed.
//
//===----------------------------------------------------------------------===//

#include "koila/Target/PyTorchArchive/Pickle.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/Endian.h"

using namespace koila::torchscript;
using llvm::StringRef;
using llvm::Twine;
namespace endian = llvm::support::endian;

namespace {
enum class Kind : uint8_t { Other, Integer, Text, Global };

struct Value {
  Kind kind = Kind::Other;
  /// Of a container: its node; -1 for anything else.
  int32_t node = -1;
  int64_t integer = 0;
  /// The text, or the name of a global.
  StringRef text;
};

/// A container, and what is in it. Numbers are left out unless the container
/// is a short tuple, whose elements may describe a storage.
struct Node {
  llvm::SmallVector<int32_t, 2> children;
  llvm::SmallVector<Value, 0> elements;
};

class PickleReader {
public:
  explicit PickleReader(StringRef pickle) : rest(pickle), size(pickle.size()) {}

  std::optional<PickleSummary> read(std::string &error);

private:
  // Each returns false after an error.
  bool step();
  bool fail(const Twine &why) {
    if (problem.empty())
      problem = why.str();
    return false;
  }
  bool take(size_t bytes, StringRef &taken);
  bool pop(Value &value);
  /// The values above the last mark, which goes away.
  bool popMarked(llvm::SmallVectorImpl<Value> &values);
  bool remember(uint64_t index);
  bool recall(uint64_t index);
  bool makeTuple(llvm::ArrayRef<Value> values);
  bool addToTop(llvm::ArrayRef<Value> values);
  bool popTuple(size_t count);
  bool readGlobal();
  bool call();
  bool readStorage();
  bool measureNesting();

  void push(Value value) { stack.push_back(value); }
  void pushNode() {
    Value value;
    value.node = static_cast<int32_t>(nodes.size());
    nodes.emplace_back();
    push(value);
  }

  StringRef rest;
  size_t size;
  std::vector<Value> stack;
  std::vector<size_t> marks;
  std::vector<Value> memo;
  std::vector<Node> nodes;
  bool stopped = false;
  std::string problem;
  PickleSummary summary;
};
} // namespace

/// Longer tuples describe no storage.
static constexpr size_t kShortTuple = 8;

bool PickleReader::take(size_t bytes, StringRef &taken) {
  if (rest.size() < bytes)
    return fail("it ends in the middle of an instruction");
  taken = rest.take_front(bytes);
  rest = rest.drop_front(bytes);
  return true;
}

bool PickleReader::pop(Value &value) {
  if (stack.empty() || (!marks.empty() && stack.size() <= marks.back()))
    return fail("an instruction takes a value that is not there");
  value = stack.back();
  stack.pop_back();
  return true;
}

bool PickleReader::popMarked(llvm::SmallVectorImpl<Value> &values) {
  if (marks.empty())
    return fail("an instruction takes a mark that is not there");
  values.assign(stack.begin() + marks.back(), stack.end());
  stack.resize(marks.back());
  marks.pop_back();
  return true;
}

bool PickleReader::remember(uint64_t index) {
  // LibTorch makes its table as long as the index says.
  if (stack.empty() || index >= size)
    return fail("it remembers a value in a place that is not there");
  if (index >= memo.size())
    memo.resize(index + 1);
  memo[index] = stack.back();
  return true;
}

bool PickleReader::recall(uint64_t index) {
  if (index >= memo.size())
    return fail("it takes a value that was never remembered");
  push(memo[index]);
  return true;
}

bool PickleReader::addToTop(llvm::ArrayRef<Value> values) {
  if (stack.empty() || stack.back().node < 0 ||
      (!marks.empty() && stack.size() <= marks.back()))
    return fail("it fills a container that is not there");
  Node &node = nodes[stack.back().node];
  for (const Value &value : values)
    if (value.node >= 0)
      node.children.push_back(value.node);
  return true;
}

bool PickleReader::makeTuple(llvm::ArrayRef<Value> values) {
  pushNode();
  if (values.size() <= kShortTuple)
    nodes.back().elements.assign(values.begin(), values.end());
  return addToTop(values);
}

bool PickleReader::popTuple(size_t count) {
  llvm::SmallVector<Value, 3> values(count);
  for (Value &value : llvm::reverse(values))
    if (!pop(value))
      return false;
  return makeTuple(values);
}

bool PickleReader::readGlobal() {
  size_t first = rest.find('\n');
  size_t second = first == StringRef::npos ? first : rest.find('\n', first + 1);
  if (second == StringRef::npos)
    return fail("it ends in the middle of a name");
  StringRef module = rest.take_front(first);
  StringRef name = rest.slice(first + 1, second);
  rest = rest.drop_front(second + 1);
  summary.globals.push_back((module + "." + name).str());
  Value value;
  value.kind = Kind::Global;
  value.text = name;
  push(value);
  return true;
}

/// The result holds on to the argument.
bool PickleReader::call() {
  Value callee, argument;
  if (!pop(argument) || !pop(callee))
    return false;
  if (callee.kind != Kind::Global)
    return fail("it calls what is no function");
  pushNode();
  return addToTop(argument);
}

bool PickleReader::readStorage() {
  Value reference;
  if (!pop(reference))
    return false;
  constexpr const char *kMalformed = "it describes a storage wrongly";
  if (reference.node < 0)
    return fail(kMalformed);
  llvm::ArrayRef<Value> elements = nodes[reference.node].elements;
  if (elements.size() < 5 || elements[0].text != "storage" ||
      elements[1].kind != Kind::Global || elements[2].kind != Kind::Text ||
      elements[3].kind != Kind::Text || elements[4].kind != Kind::Integer ||
      elements[4].integer < 0)
    return fail(kMalformed);
  summary.storages.push_back({elements[1].text, elements[2].text,
                              elements[3].text, elements[4].integer});
  push(Value());
  return true;
}

bool PickleReader::step() {
  StringRef bytes;
  llvm::SmallVector<Value, 8> values;
  Value value;
  auto pushInteger = [&](int64_t integer) {
    value.kind = Kind::Integer;
    value.integer = integer;
    push(value);
    return true;
  };
  if (!take(1, bytes))
    return false;
  uint8_t code = bytes.front();
  switch (code) {
  case '.': // STOP
    stopped = true;
    return true;
  case '(': // MARK
    marks.push_back(stack.size());
    return true;
  case 'N':  // NONE
  case 0x88: // NEWTRUE
  case 0x89: // NEWFALSE
    push(value);
    return true;
  case 'K': // BININT1
    return take(1, bytes) && pushInteger(static_cast<uint8_t>(bytes[0]));
  case 'M': // BININT2
    return take(2, bytes) && pushInteger(endian::read16le(bytes.data()));
  case 'J': // BININT
    return take(4, bytes) &&
           pushInteger(static_cast<int32_t>(endian::read32le(bytes.data())));
  case 0x8a: // LONG1
    if (!take(1, bytes))
      return false;
    if (bytes[0] != 8)
      return fail("it has an integer that is not of 8 bytes");
    return take(8, bytes) &&
           pushInteger(static_cast<int64_t>(endian::read64le(bytes.data())));
  case 'G': // BINFLOAT
    if (!take(8, bytes))
      return false;
    push(value);
    return true;
  case 'X': // BINUNICODE
    if (!take(4, bytes) || !take(endian::read32le(bytes.data()), value.text))
      return false;
    value.kind = Kind::Text;
    push(value);
    return true;
  case ')': // EMPTY_TUPLE
  case ']': // EMPTY_LIST
  case '}': // EMPTY_DICT
    pushNode();
    return true;
  case 't': // TUPLE
    return popMarked(values) && makeTuple(values);
  case 0x85: // TUPLE1
  case 0x86: // TUPLE2
  case 0x87: // TUPLE3
    return popTuple(code - 0x84);
  case 'l': // LIST
    if (!popMarked(values))
      return false;
    pushNode();
    return addToTop(values);
  case 'a': // APPEND
    return pop(value) && addToTop(value);
  case 'e': // APPENDS
    return popMarked(values) && addToTop(values);
  case 'd': // DICT
  case 'u': // SETITEMS
    if (!popMarked(values))
      return false;
    if (values.size() % 2)
      return fail("a key has no value");
    if (code == 'd')
      pushNode();
    return addToTop(values);
  case 's': // SETITEM
    values.resize(2);
    return pop(values[1]) && pop(values[0]) && addToTop(values);
  case 'q': // BINPUT
    return take(1, bytes) && remember(static_cast<uint8_t>(bytes[0]));
  case 'r': // LONG_BINPUT
    return take(4, bytes) && remember(endian::read32le(bytes.data()));
  case 'h': // BINGET
    return take(1, bytes) && recall(static_cast<uint8_t>(bytes[0]));
  case 'j': // LONG_BINGET
    return take(4, bytes) && recall(endian::read32le(bytes.data()));
  case 'c': // GLOBAL
    return readGlobal();
  case 0x81: // NEWOBJ: the class stays on the stack until BUILD.
    return pop(value);
  case 'b': // BUILD
  case 'R': // REDUCE
    return call();
  case 'Q': // BINPERSID
    return readStorage();
  default:
    return fail("it has instruction 0x" + llvm::utohexstr(code) +
                ", which TorchScript files do not use");
  }
}

/// Visits each node after its children, without recursion.
bool PickleReader::measureNesting() {
  constexpr unsigned kUnknown = 0, kOpen = ~0u;
  std::vector<unsigned> depths(nodes.size(), kUnknown);
  std::vector<std::pair<int32_t, size_t>> path;
  for (int32_t root = 0; root < static_cast<int32_t>(nodes.size()); ++root) {
    if (depths[root] != kUnknown)
      continue;
    depths[root] = kOpen;
    path.push_back({root, 0});
    while (!path.empty()) {
      auto &[index, next] = path.back();
      const Node &node = nodes[index];
      if (next < node.children.size()) {
        int32_t child = node.children[next++];
        if (depths[child] == kOpen)
          return fail("a container contains itself");
        if (depths[child] == kUnknown) {
          depths[child] = kOpen;
          path.push_back({child, 0});
        }
        continue;
      }
      unsigned depth = 0;
      for (int32_t child : node.children)
        depth = std::max(depth, depths[child]);
      depths[index] = depth + 1;
      summary.nesting = std::max(summary.nesting, depth + 1);
      path.pop_back();
    }
  }
  return true;
}

std::optional<PickleSummary> PickleReader::read(std::string &error) {
  StringRef head;
  bool good = take(2, head) &&
              (head == "\x80\x02" || fail("it is not of pickle protocol 2"));
  while (good && !stopped)
    good = step();
  if (good && (stack.size() != 1 || !marks.empty()))
    good = fail("it does not end in one value");
  if (!good || !measureNesting()) {
    error = problem;
    return std::nullopt;
  }
  return std::move(summary);
}

std::optional<PickleSummary>
koila::torchscript::readPickle(StringRef pickle, std::string &error) {
  return PickleReader(pickle).read(error);
}

std::optional<unsigned>
koila::torchscript::getElementSize(StringRef storageType) {
  unsigned size = llvm::StringSwitch<unsigned>(storageType)
                      .Cases({"ByteStorage", "CharStorage", "BoolStorage"}, 1)
                      .Cases({"QInt8Storage", "QUInt8Storage"}, 1)
                      .Cases({"UntypedStorage"}, 1)
                      .Cases({"ShortStorage", "HalfStorage"}, 2)
                      .Cases({"BFloat16Storage"}, 2)
                      .Cases({"IntStorage", "FloatStorage"}, 4)
                      .Cases({"QInt32Storage"}, 4)
                      .Cases({"LongStorage", "DoubleStorage"}, 8)
                      .Cases({"ComplexFloatStorage"}, 8)
                      .Cases({"ComplexDoubleStorage"}, 16)
                      .Default(0);
  return size ? std::optional(size) : std::nullopt;
}
