//===- Arguments.cpp - Matching specs with arguments ----------------------===//

#include "Arguments.h"
#include "koila/Dialect/Koila/IR/DType.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace koila;
using namespace koila::detail;

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

bool Argument::isComplete() const {
  if (dims || value || defaultValue)
    return true;
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.hasStaticShape() &&
         !isa<AnyType>(tensor.getElementType());
}

std::string Argument::label() const {
  return name.empty() ? "#" + std::to_string(index) : ("'" + name + "'").str();
}

std::string Argument::kind() const { return describeType(type); }

std::string koila::detail::describeType(Type type) {
  return llvm::TypeSwitch<Type, std::string>(type)
      .Case<TensorType>([](auto) { return "Tensor"; })
      .Case([](FloatType) { return "float"; })
      .Case([](IntegerType integer) {
        return integer.getWidth() == 1 ? "bool" : "int";
      })
      .Case([](NoneType) { return "None"; })
      .Case([](ListType list) {
        return "List[" + describeType(list.getElementType()) + "]";
      })
      .Case([](OptionalType optional) {
        return "Optional[" + describeType(optional.getValueType()) + "]";
      })
      .Case([](DictType dict) {
        return "Dict[" + describeType(dict.getKeyType()) + ", " +
               describeType(dict.getValueType()) + "]";
      })
      .Case([](TupleType tuple) {
        std::string text = "Tuple[";
        for (auto [index, element] : llvm::enumerate(tuple.getTypes()))
          text += (index ? ", " : "") + describeType(element);
        return text + "]";
      })
      .Case([](TorchType torch) { return torch.getSpelling().str(); })
      .Default([](Type other) {
        std::string text;
        llvm::raw_string_ostream os(text);
        os << other;
        return text;
      });
}

SmallVector<Argument> koila::detail::getArguments(func::FuncOp function) {
  SmallVector<Argument> arguments;
  for (auto [index, type] : llvm::enumerate(function.getArgumentTypes())) {
    Argument &argument = arguments.emplace_back();
    argument.index = index;
    argument.type = type;
    if (auto name = function.getArgAttrOfType<StringAttr>(
            index, KoilaDialect::kNameAttr))
      argument.name = name.getValue();
    argument.dims =
        function.getArgAttrOfType<DimsAttr>(index, KoilaDialect::kDimsAttr);
    argument.defaultValue = function.getArgAttr(index, kDefaultAttr);
    argument.value = function.getArgAttr(index, KoilaDialect::kValueAttr);
    if (auto example = function.getArgAttrOfType<TypeAttr>(index, kExampleAttr))
      argument.example = dyn_cast<RankedTensorType>(example.getValue());
  }
  return arguments;
}

std::string koila::detail::listArguments(ArrayRef<Argument> arguments) {
  std::string text;
  llvm::raw_string_ostream os(text);
  if (arguments.empty())
    return "none";
  llvm::interleaveComma(arguments, os, [&](const Argument &argument) {
    if (argument.name.empty())
      os << argument.label();
    else
      os << argument.name;
    os << ": " << argument.kind();
    if (argument.defaultValue)
      os << " (optional)";
  });
  return text;
}

LogicalResult koila::detail::matchSpecs(Location location,
                                        ArrayRef<InputSpec> specs,
                                        MutableArrayRef<Argument> arguments) {
  size_t position = 0;
  bool named = false;
  for (const InputSpec &spec : specs) {
    Argument *argument = nullptr;
    if (spec.name.empty()) {
      if (named)
        return emitError(location)
               << "--input '" << spec.str()
               << "' is given by position after one by name; give its name too";
      if (position == arguments.size())
        return emitError(location)
               << "too many inputs: '" << spec.str() << "' is number "
               << position + 1 << ", and the arguments are "
               << listArguments(arguments);
      argument = &arguments[position++];
    } else {
      named = true;
      argument = llvm::find_if(arguments, [&](const Argument &candidate) {
        return candidate.name == spec.name;
      });
      if (argument == arguments.end())
        return emitError(location)
               << "unknown input '" << spec.name << "'; the arguments are "
               << listArguments(arguments);
    }
    if (argument->spec)
      return emitError(location)
             << "argument " << argument->label() << " is given twice, as '"
             << argument->spec->str() << "' and '" << spec.str() << "'";
    argument->spec = &spec;
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Recorded shapes
//===----------------------------------------------------------------------===//

/// The recorded type as a spec; leading extents equal to `batch` become B.
static InputSpec makeSpec(const Argument &argument, int64_t batch) {
  InputSpec spec;
  spec.name = argument.name.str();
  spec.kind = InputSpec::Kind::Tensor;
  spec.dtype = getDTypeName(argument.example.getElementType()).str();
  for (auto [index, extent] : llvm::enumerate(argument.example.getShape())) {
    InputDim &dim = spec.dims.emplace_back();
    dim.factor = extent;
    if (index == 0 && extent == batch) {
      dim.factor = 1;
      dim.symbol = "B";
    }
  }
  return spec;
}

static void printInput(llvm::raw_ostream &os, const InputSpec &spec) {
  os << "--input='" << (spec.name.empty() ? "" : spec.name + "=") << spec.str()
     << "'";
}

/// The first leading extent on record; none without one.
static std::optional<int64_t> getLeadingExtent(ArrayRef<Argument> arguments) {
  for (const Argument &argument : arguments)
    if (argument.example && argument.example.getRank() > 0)
      return argument.example.getDimSize(0);
  return std::nullopt;
}

std::string koila::detail::suggestInputs(ArrayRef<Argument> arguments) {
  int64_t batch = getLeadingExtent(arguments).value_or(-1);
  std::string text;
  llvm::raw_string_ostream os(text);
  for (const Argument &argument : arguments) {
    if (!argument.isMissing())
      continue;
    os << "\n  ";
    if (argument.example) {
      printInput(os, makeSpec(argument, batch));
      continue;
    }
    os << "--input='" << argument.name << (argument.name.empty() ? "" : "=");
    auto ranked = dyn_cast<RankedTensorType>(argument.type);
    if (ranked && !isa<AnyType>(ranked.getElementType())) {
      os << getDTypeName(ranked.getElementType()) << '[';
      for (int64_t index = 0; index < ranked.getRank(); ++index) {
        os << (index ? "," : "");
        if (!ranked.isDynamicDim(index))
          os << ranked.getDimSize(index);
        else if (index == 0)
          os << 'B';
        else
          os << "...";
      }
      os << "]'";
    } else if (argument.isTensor()) {
      os << "float32[B,...]'";
    } else {
      os << '<' << argument.kind() << ">'";
    }
  }
  return text;
}

LogicalResult koila::detail::makeRecordedSpecs(Location location,
                                               ArrayRef<Argument> arguments,
                                               std::vector<InputSpec> &specs,
                                               llvm::raw_ostream &notes) {
  auto open = llvm::make_filter_range(
      arguments, [](const Argument &argument) { return argument.isMissing(); });
  for (const Argument &argument : open)
    if (!argument.example)
      return emitError(location)
             << "argument " << argument.label() << " (" << argument.kind()
             << ") needs an input, which says its shape; add:"
             << suggestInputs(arguments);

  int64_t batch = getLeadingExtent(arguments).value_or(-1);
  for (const Argument &argument : open) {
    if (argument.example.getRank() == 0)
      continue;
    int64_t extent = argument.example.getDimSize(0);
    if (extent == batch && extent > 1)
      continue;
    return emitError(location)
           << "the shapes recorded at tracing do not tell which dim is the "
              "batch: the leading extent of argument "
           << argument.label() << " is " << extent
           << (extent == batch
                   ? ""
                   : ", and that of another " + std::to_string(batch))
           << "; add these with the batch written as B:"
           << suggestInputs(arguments);
  }
  notes << "note: using recorded input shapes:";
  for (const Argument &argument : open) {
    specs.push_back(makeSpec(argument, batch));
    notes << ' ';
    printInput(notes, specs.back());
  }
  notes << '\n';
  return success();
}
