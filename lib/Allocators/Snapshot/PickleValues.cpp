//===- PickleValues.cpp - Pickles of plain values -------------------------===//
//
// The instructions are those of Lib/pickletools.py of Python. Of those that
// call something, or name a class, none is known here.
//
//===----------------------------------------------------------------------===//

#include "PickleValues.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Endian.h"

using namespace koila;
using Kind = PickleValue::Kind;
using llvm::StringRef;
using llvm::Twine;
namespace endian = llvm::support::endian;

namespace koila {
class PickleReader {
public:
  explicit PickleReader(StringRef pickle) : rest(pickle), size(pickle.size()) {}

  llvm::Expected<PickleValues> read();

private:
  // Each returns false after an error.
  bool step();
  bool stepInto(uint8_t code);
  bool fail(const Twine &why);
  bool take(size_t bytes, StringRef &taken);
  bool takeText(size_t bytes);
  bool takeLong(size_t bytes);
  bool pop(PickleValue &value);
  bool popMarked(std::vector<PickleValue> &popped);
  /// The container on top gets values.
  bool fill(Kind kind, llvm::ArrayRef<PickleValue> added);
  bool pushContainer(Kind kind, llvm::ArrayRef<PickleValue> elements);
  bool pushTuple(size_t count);
  bool remember(uint64_t index);
  bool recall(uint64_t index);

  bool push(const PickleValue &value) {
    stack.push_back(value);
    return true;
  }
  bool pushKind(Kind kind, int64_t integer = 0) {
    PickleValue value;
    value.kind = kind;
    value.integer = integer;
    return push(value);
  }
  bool isEmpty() const {
    return stack.empty() || (!marks.empty() && stack.size() <= marks.back());
  }

  StringRef rest;
  size_t size, begin = 0;
  std::vector<PickleValue> stack;
  std::vector<size_t> marks;
  /// What is remembered, and whether something is.
  std::vector<std::pair<PickleValue, bool>> memo;
  bool stopped = false;
  std::string problem;
  PickleValues values;
};
} // namespace koila

bool PickleReader::fail(const Twine &why) {
  problem = ("at byte " + Twine(begin) + ": " + why).str();
  return false;
}

bool PickleReader::take(size_t bytes, StringRef &taken) {
  if (rest.size() < bytes)
    return fail("it ends in the middle of an instruction");
  taken = rest.take_front(bytes);
  rest = rest.drop_front(bytes);
  return true;
}

bool PickleReader::takeText(size_t bytes) {
  PickleValue value;
  value.kind = Kind::Text;
  return take(bytes, value.text) && push(value);
}

/// Little-endian, in two's complement.
bool PickleReader::takeLong(size_t bytes) {
  StringRef text;
  if (!take(bytes, text))
    return false;
  bool isPositive = bytes == 9 && text[8] == 0;
  if (bytes > 8 && !isPositive)
    return pushKind(Kind::Huge);
  uint64_t integer = 0;
  for (size_t i = 0; i < std::min<size_t>(bytes, 8); ++i)
    integer |= uint64_t(static_cast<uint8_t>(text[i])) << (8 * i);
  if (bytes && bytes < 8 && (text.back() & 0x80))
    integer |= ~uint64_t(0) << (8 * bytes);
  auto value = static_cast<int64_t>(integer);
  return pushKind(isPositive && value < 0 ? Kind::Unsigned : Kind::Integer,
                  value);
}

bool PickleReader::pop(PickleValue &value) {
  if (isEmpty())
    return fail("an instruction takes a value that is not there");
  value = stack.back();
  stack.pop_back();
  return true;
}

bool PickleReader::popMarked(std::vector<PickleValue> &popped) {
  if (marks.empty())
    return fail("an instruction takes a mark that is not there");
  popped.assign(stack.begin() + static_cast<ptrdiff_t>(marks.back()),
                stack.end());
  stack.resize(marks.back());
  marks.pop_back();
  return true;
}

bool PickleReader::fill(Kind kind, llvm::ArrayRef<PickleValue> added) {
  if (isEmpty() || stack.back().kind != kind)
    return fail("it fills a container that is not there");
  if (kind == Kind::Dict && added.size() % 2)
    return fail("a key has no value");
  llvm::append_range(values.nodes[stack.back().node], added);
  return true;
}

bool PickleReader::pushContainer(Kind kind,
                                 llvm::ArrayRef<PickleValue> elements) {
  PickleValue value;
  value.kind = kind;
  value.node = static_cast<uint32_t>(values.nodes.size());
  values.nodes.emplace_back();
  return push(value) && fill(kind, elements);
}

bool PickleReader::pushTuple(size_t count) {
  PickleValue elements[3];
  for (size_t i = count; i-- > 0;)
    if (!pop(elements[i]))
      return false;
  return pushContainer(Kind::List, llvm::ArrayRef(elements, count));
}

bool PickleReader::remember(uint64_t index) {
  // A table is not longer than the pickle that fills it.
  if (isEmpty() || index >= size)
    return fail("it remembers a value in a place that is not there");
  if (index >= memo.size())
    memo.resize(index + 1);
  memo[index] = {stack.back(), true};
  return true;
}

bool PickleReader::recall(uint64_t index) {
  if (index >= memo.size() || !memo[index].second)
    return fail("it takes a value that was never remembered");
  return push(memo[index].first);
}

bool PickleReader::stepInto(uint8_t code) {
  StringRef bytes;
  std::vector<PickleValue> popped;
  PickleValue value;
  switch (code) {
  case '.': // STOP
    stopped = true;
    return true;
  case '(': // MARK
    marks.push_back(stack.size());
    return true;
  case 'N': // NONE
    return pushKind(Kind::None);
  case 0x88: // NEWTRUE
  case 0x89: // NEWFALSE
    return pushKind(Kind::Boolean, code == 0x88);
  case 'K': // BININT1
    return take(1, bytes) &&
           pushKind(Kind::Integer, static_cast<uint8_t>(bytes[0]));
  case 'M': // BININT2
    return take(2, bytes) &&
           pushKind(Kind::Integer, endian::read16le(bytes.data()));
  case 'J': // BININT
    return take(4, bytes) &&
           pushKind(Kind::Integer,
                    static_cast<int32_t>(endian::read32le(bytes.data())));
  case 0x8a: // LONG1
    return take(1, bytes) && takeLong(static_cast<uint8_t>(bytes[0]));
  case 'G': // BINFLOAT
    if (!take(8, bytes))
      return false;
    value.kind = Kind::Float;
    value.number = llvm::bit_cast<double>(endian::read64be(bytes.data()));
    return push(value);
  case 'X': // BINUNICODE
    return take(4, bytes) && takeText(endian::read32le(bytes.data()));
  case 0x8c: // SHORT_BINUNICODE
    return take(1, bytes) && takeText(static_cast<uint8_t>(bytes[0]));
  case ')': // EMPTY_TUPLE
  case ']': // EMPTY_LIST
    return pushContainer(Kind::List, {});
  case '}': // EMPTY_DICT
    return pushContainer(Kind::Dict, {});
  case 't': // TUPLE
  case 'l': // LIST
    return popMarked(popped) && pushContainer(Kind::List, popped);
  case 'd': // DICT
    return popMarked(popped) && pushContainer(Kind::Dict, popped);
  case 0x85: // TUPLE1
  case 0x86: // TUPLE2
  case 0x87: // TUPLE3
    return pushTuple(code - 0x84);
  case 'a': // APPEND
    return pop(value) && fill(Kind::List, value);
  case 'e': // APPENDS
    return popMarked(popped) && fill(Kind::List, popped);
  case 's': // SETITEM
    popped.resize(2);
    return pop(popped[1]) && pop(popped[0]) && fill(Kind::Dict, popped);
  case 'u': // SETITEMS
    return popMarked(popped) && fill(Kind::Dict, popped);
  case 0x94: // MEMOIZE
    return remember(memo.size());
  case 'q': // BINPUT
    return take(1, bytes) && remember(static_cast<uint8_t>(bytes[0]));
  case 'r': // LONG_BINPUT
    return take(4, bytes) && remember(endian::read32le(bytes.data()));
  case 'h': // BINGET
    return take(1, bytes) && recall(static_cast<uint8_t>(bytes[0]));
  case 'j': // LONG_BINGET
    return take(4, bytes) && recall(endian::read32le(bytes.data()));
  case 0x95: // FRAME, whose length is of use to streams
    return take(8, bytes);
  case 'c':  // GLOBAL
  case 0x93: // STACK_GLOBAL
  case 'R':  // REDUCE
  case 'i':  // INST
  case 'o':  // OBJ
  case 'b':  // BUILD
  case 0x81: // NEWOBJ
  case 0x92: // NEWOBJ_EX
    return fail("it names or calls a class or a function, which is not run; a "
                "snapshot has plain values alone");
  default:
    return fail("instruction 0x" + llvm::utohexstr(code) +
                " is none of a snapshot");
  }
}

bool PickleReader::step() {
  begin = size - rest.size();
  StringRef code;
  if (rest.empty())
    return fail("it ends without its last instruction");
  return take(1, code) && stepInto(static_cast<uint8_t>(code[0]));
}

llvm::Expected<PickleValues> PickleReader::read() {
  StringRef head;
  bool isGood = take(2, head);
  if (isGood && (head[0] != '\x80' || head[1] < 2 || head[1] > 5))
    isGood = fail("it is not a pickle of protocol 2 to 5");
  while (isGood && !stopped)
    isGood = step();
  if (isGood && (stack.size() != 1 || !marks.empty()))
    isGood = fail("it does not end in one value");
  if (!isGood)
    return llvm::createStringError(problem);
  values.root = stack.back();
  return std::move(values);
}

llvm::Expected<PickleValues> PickleValues::read(StringRef pickle) {
  // Containers have numbers of 32 bits, and each takes a byte.
  if (pickle.size() > std::numeric_limits<uint32_t>::max())
    return llvm::createStringError("it has more than 4 GiB");
  return PickleReader(pickle).read();
}

const PickleValue *PickleValues::find(const PickleValue &dict,
                                      StringRef key) const {
  llvm::ArrayRef<PickleValue> elements = getElements(dict);
  // What was set last holds.
  for (size_t i = elements.size(); i >= 2; i -= 2)
    if (elements[i - 2].kind == Kind::Text && elements[i - 2].text == key)
      return &elements[i - 1];
  return nullptr;
}
