//===- Parser.cpp - Reading the --input language --------------------------===//
//
// A recursive-descent parser. It keeps the whole text, so that each error can
// quote what the user wrote and say where it stopped.
//
//===----------------------------------------------------------------------===//

#include "koila/Dialect/Koila/IR/DType.h"
#include "koila/InputSpec/InputSpec.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace koila;
using llvm::StringRef;
using llvm::Twine;

//===----------------------------------------------------------------------===//
// The parser
//===----------------------------------------------------------------------===//

static bool isWordStart(char c) { return llvm::isAlpha(c) || c == '_'; }
static bool isWord(char c) { return llvm::isAlnum(c) || c == '_'; }

namespace {
class SpecParser {
public:
  SpecParser(StringRef text, std::string &error)
      : text(text), rest(text), error(error) {}

  bool parseTopLevel(InputSpec &spec);

private:
  bool parseValue(InputSpec &spec);
  bool parseTensor(StringRef dtype, InputSpec &spec);
  bool parseDim(InputDim &dim, size_t index);
  bool parseRange(InputRange &range);
  bool parseBound(InputDim &bound);
  bool parseFlags(InputSpec &spec);
  bool parseNumber(InputSpec &spec);
  bool parseString(InputSpec &spec);
  bool parseElements(char close, InputSpec &spec);
  bool parseDict(InputSpec &spec);
  bool parseUnsigned(int64_t &value, const Twine &what);

  void skipBlanks() { rest = rest.ltrim(); }
  bool consume(char c) {
    skipBlanks();
    return rest.consume_front(StringRef(&c, 1));
  }
  bool peek(char c) {
    skipBlanks();
    return !rest.empty() && rest.front() == c;
  }
  StringRef takeWord() {
    skipBlanks();
    if (rest.empty() || !isWordStart(rest.front()))
      return {};
    StringRef word = rest.take_while(isWord);
    rest = rest.drop_front(word.size());
    return word;
  }
  bool fail(const Twine &message) {
    error = (message + " in '" + text + "'").str();
    return false;
  }
  /// What stands at the place of an error.
  std::string found() {
    skipBlanks();
    if (rest.empty())
      return "the end";
    return ("'" + rest.take_front(1) + "'").str();
  }

  /// A spec nested this deep is a mistake, and must not exhaust the stack.
  static constexpr unsigned kMaxDepth = 64;

  StringRef text, rest;
  std::string &error;
  unsigned depth = 0;
};
} // namespace

bool SpecParser::parseTopLevel(InputSpec &spec) {
  skipBlanks();
  if (rest.empty()) {
    error = "an empty input; write for example 'x=float32[B,3,224,224]'";
    return false;
  }
  // NAME '=': dims have '=' as well, but only behind a bracket.
  StringRef atStart = rest;
  StringRef name = takeWord();
  if (!name.empty() && consume('='))
    spec.name = name.str();
  else
    rest = atStart;
  if (!parseValue(spec))
    return false;
  skipBlanks();
  if (!rest.empty())
    return fail("unexpected '" + rest + "' after the value");
  return true;
}

bool SpecParser::parseValue(InputSpec &spec) {
  skipBlanks();
  if (rest.empty())
    return fail("expected a tensor such as float32[B,3] or a literal at the "
                "end");
  if (++depth > kMaxDepth)
    return fail("lists are nested deeper than " + Twine(kMaxDepth));
  bool parsed = false;
  char first = rest.front();
  if (first == '[' || first == '(') {
    rest = rest.drop_front();
    spec.kind = first == '[' ? InputSpec::Kind::List : InputSpec::Kind::Tuple;
    parsed = parseElements(first == '[' ? ']' : ')', spec);
  } else if (first == '{') {
    rest = rest.drop_front();
    spec.kind = InputSpec::Kind::Dict;
    parsed = parseDict(spec);
  } else if (first == '"' || first == '\'') {
    parsed = parseString(spec);
  } else if (llvm::isDigit(first) || first == '-' || first == '+' ||
             first == '.') {
    parsed = parseNumber(spec);
  } else if (StringRef word = takeWord(); !word.empty()) {
    if (word == "torch" && rest.consume_front("."))
      word = takeWord();
    if (peek('[')) {
      parsed = parseTensor(word, spec);
    } else if (word == "true" || word == "True" || word == "false" ||
               word == "False") {
      spec.kind = InputSpec::Kind::Bool;
      spec.boolValue = word.equals_insensitive("true");
      parsed = true;
    } else if (word == "none" || word == "None") {
      spec.kind = InputSpec::Kind::None;
      parsed = true;
    } else if (word == "inf" || word == "nan") {
      spec.kind = InputSpec::Kind::Float;
      parsed = !StringRef(word).getAsDouble(spec.floatValue);
    } else if (!getCanonicalDType(word).empty()) {
      return fail("expected '[' and dims after '" + word + "'");
    } else {
      return fail("'" + word +
                  "' is no literal (put a string in quotes; a "
                  "tensor is a dtype and dims, as float32[B,3])");
    }
  } else {
    return fail("unexpected " + found());
  }
  --depth;
  return parsed;
}

bool SpecParser::parseUnsigned(int64_t &value, const Twine &what) {
  skipBlanks();
  StringRef digits = rest.take_while(llvm::isDigit);
  if (digits.empty())
    return fail("expected " + what + ", found " + found());
  if (digits.getAsInteger(10, value))
    return fail("'" + digits + "' is too large for " + what);
  rest = rest.drop_front(digits.size());
  return true;
}

bool SpecParser::parseTensor(StringRef dtype, InputSpec &spec) {
  spec.kind = InputSpec::Kind::Tensor;
  StringRef canonical = getCanonicalDType(dtype);
  if (canonical.empty())
    return fail("unknown dtype '" + dtype + "' (known: " + listDTypes() + ")");
  spec.dtype = canonical.str();
  consume('[');
  if (!consume(']')) {
    do {
      InputDim &dim = spec.dims.emplace_back();
      if (!parseDim(dim, spec.dims.size()))
        return false;
    } while (consume(','));
    if (!consume(']'))
      return fail("expected ']' after dim " + Twine(spec.dims.size()));
  }
  if (consume('{') && !parseRange(spec.range.emplace()))
    return false;
  return parseFlags(spec);
}

bool SpecParser::parseDim(InputDim &dim, size_t index) {
  skipBlanks();
  if (peek('-'))
    return fail("dim " + Twine(index) +
                " is negative; an extent is a number "
                "or a symbol such as B");
  if (peek('?'))
    return fail("dim " + Twine(index) + " is '?'; give it a name, such as B");
  bool number = !rest.empty() && llvm::isDigit(rest.front());
  if (number && !parseUnsigned(dim.factor, "dim " + Twine(index)))
    return false;
  if (number && !consume('*'))
    return true;
  if (number && dim.factor == 0)
    return fail("dim " + Twine(index) + " has the factor 0");
  StringRef symbol = takeWord();
  if (symbol.empty())
    return fail("expected " +
                Twine(number ? "a symbol after '*'" : "a number or symbol") +
                " as dim " + Twine(index) + ", found " + found());
  dim.symbol = symbol.str();
  if (!consume('='))
    return true;
  return parseUnsigned(dim.pinned.emplace(),
                       "a number as the value of '" + symbol + "'");
}

bool SpecParser::parseBound(InputDim &bound) {
  bool negative = consume('-');
  skipBlanks();
  bool number = !rest.empty() && llvm::isDigit(rest.front());
  if (number && !parseUnsigned(bound.factor, "an end of the range"))
    return false;
  if (negative)
    bound.factor = -bound.factor;
  if (number && !consume('*'))
    return true;
  StringRef symbol = takeWord();
  if (symbol.empty())
    return fail("expected an integer or a symbol in the range {LO:HI}, found " +
                found());
  bound.symbol = symbol.str();
  return true;
}

bool SpecParser::parseRange(InputRange &range) {
  if (!parseBound(range.from))
    return false;
  if (!consume(':'))
    return fail("expected ':' in the range {LO:HI}, found " + found());
  if (!parseBound(range.to))
    return false;
  if (!consume('}'))
    return fail("expected '}' after the range, found " + found());
  if (range.from.isConstant() && range.to.isConstant() &&
      range.from.factor >= range.to.factor)
    return fail("the range {" + Twine(range.from.factor) + ":" +
                Twine(range.to.factor) +
                "} is empty (the upper end is "
                "exclusive)");
  return true;
}

bool SpecParser::parseFlags(InputSpec &spec) {
  while (consume('@')) {
    StringRef flag = takeWord();
    if (flag == "channels_last")
      spec.channelsLast = true;
    else if (flag == "grad")
      spec.requiresGrad = true;
    else
      return fail("unknown flag '@" + flag +
                  "' (known: @channels_last, @grad)");
  }
  if (spec.channelsLast && spec.dims.size() != 4)
    return fail("@channels_last needs four dims, found " +
                Twine(spec.dims.size()));
  StringRef dtype = spec.dtype;
  if (spec.requiresGrad && !dtype.contains("float") &&
      !dtype.starts_with("complex"))
    return fail("only floating point tensors can require grad: @grad");
  return true;
}

bool SpecParser::parseNumber(InputSpec &spec) {
  StringRef number = rest.take_while(
      [](char c) { return isWord(c) || c == '.' || c == '-' || c == '+'; });
  StringRef digits = number;
  digits.consume_front("+");
  if (!digits.getAsInteger(10, spec.intValue)) {
    spec.kind = InputSpec::Kind::Int;
  } else if (StringRef(digits)
                 .drop_while(
                     [](char c) { return c == '-' || llvm::isDigit(c); })
                 .empty()) {
    return fail("'" + number + "' does not fit in 64 bits");
  } else if (!digits.getAsDouble(spec.floatValue)) {
    spec.kind = InputSpec::Kind::Float;
  } else {
    return fail("'" + number + "' is no number");
  }
  rest = rest.drop_front(number.size());
  return true;
}

bool SpecParser::parseString(InputSpec &spec) {
  spec.kind = InputSpec::Kind::String;
  char quote = rest.front();
  rest = rest.drop_front();
  while (!rest.empty() && rest.front() != quote) {
    if (rest.front() == '\\' && rest.size() > 1)
      rest = rest.drop_front();
    spec.stringValue += rest.front();
    rest = rest.drop_front();
  }
  if (rest.empty())
    return fail("expected a closing " + Twine(StringRef(&quote, 1)));
  rest = rest.drop_front();
  return true;
}

bool SpecParser::parseElements(char close, InputSpec &spec) {
  if (consume(close))
    return true;
  do {
    if (peek(close))
      break; // A trailing comma, as in `(x,)`.
    if (!parseValue(spec.elements.emplace_back()))
      return false;
  } while (consume(','));
  if (!consume(close))
    return fail("expected ',' or '" + Twine(StringRef(&close, 1)) +
                "' after element " + Twine(spec.elements.size()));
  return true;
}

bool SpecParser::parseDict(InputSpec &spec) {
  if (consume('}'))
    return true;
  do {
    if (peek('}'))
      break;
    InputSpec &key = spec.keys.emplace_back();
    // A bare word is a string key, as in {image: float32[B,3]}.
    if (StringRef word = takeWord(); !word.empty()) {
      key.kind = InputSpec::Kind::String;
      key.stringValue = word.str();
    } else if (!parseValue(key)) {
      return false;
    }
    if (key.kind != InputSpec::Kind::String && key.kind != InputSpec::Kind::Int)
      return fail("a key is a string or an integer; key " +
                  Twine(spec.keys.size()) + " is neither");
    if (!consume(':'))
      return fail("expected ':' after key " + Twine(spec.keys.size()));
    if (!parseValue(spec.elements.emplace_back()))
      return false;
  } while (consume(','));
  if (!consume('}'))
    return fail("expected ',' or '}' after entry " +
                Twine(spec.elements.size()));
  return true;
}

bool koila::parseInputSpec(StringRef text, InputSpec &spec,
                           std::string &error) {
  spec = InputSpec();
  error.clear();
  return SpecParser(text, error).parseTopLevel(spec);
}

std::string koila::getGradientArguments(llvm::ArrayRef<InputSpec> specs) {
  std::string text;
  for (auto [position, spec] : llvm::enumerate(specs)) {
    if (!spec.requiresGrad)
      continue;
    text += text.empty() ? "" : ",";
    text += spec.name.empty() ? std::to_string(position) : spec.name;
  }
  return text;
}

std::optional<SymbolValue> koila::parseBatchValue(StringRef text,
                                                  std::string &error) {
  auto [name, value] = text.split('=');
  name = name.trim();
  value = value.trim();
  int64_t number;
  if (name.empty() || !isWordStart(name.front()) ||
      !name.drop_while(isWord).empty() || value.getAsInteger(10, number)) {
    error = ("'" + text + "': expected a symbol and its value, as B=64").str();
    return std::nullopt;
  }
  if (number < 1) {
    error = ("'" + text + "': the value of '" + name + "' is at least 1").str();
    return std::nullopt;
  }
  return SymbolValue(name.str(), number);
}

bool CallSpec::addBatch(StringRef text, std::string &error) {
  std::optional<SymbolValue> value = parseBatchValue(text, error);
  if (value)
    batch.push_back(*value);
  return value.has_value();
}
