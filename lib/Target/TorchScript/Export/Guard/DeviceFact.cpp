//===- DeviceFact.cpp - All tensors are on one device ---------------------===//

#include "DeviceFact.h"

using namespace koila::torchscript;
namespace tj = torch::jit;
namespace prim = c10::prim;

tj::Value *DeviceFact::emit(GraphEmitter &emitter) const {
  TorchValue *none = emitter.constant(std::string());
  if (!place)
    return none;
  TorchValue *device = emitter.call("prim::device", place);
  std::string where =
      ", and " + llvm::StringRef(placeName).split(": ").second.str() + " on ";
  // The text of `tensor`, which messages call `name`, or what was `before`.
  auto compare = [&](TorchValue *tensor, TorchValue *name, TorchValue *before) {
    TorchValue *other = emitter.call("prim::device", tensor);
    return emitter.branch(
        emitter.call("aten::eq", {other, device}), c10::StringType::get(),
        [&] { return before; },
        [&] {
          TorchValue *words = name;
          auto add = [&](TorchValue *part) {
            words = emitter.call("aten::add", {words, part});
          };
          add(emitter.constant(std::string(" is on ")));
          add(emitter.call("aten::str", other));
          add(emitter.constant(where));
          add(emitter.call("aten::str", device));
          add(emitter.constant(suffix));
          return words;
        });
  };
  TorchValue *found = none;
  for (const auto &[tensor, name] : arguments)
    found = compare(tensor, emitter.constant(name), found);
  if (!weights)
    return found;
  llvm::SmallVector<TorchValue *> names;
  for (const std::string &name : weightNames)
    names.push_back(emitter.constant("koila: weight '" + name + "'"));
  TorchValue *nameList = emitter.list(names, c10::StringType::get());
  tj::Graph &graph = emitter.getGraph();
  tj::Node *loop = graph.insertNode(
      graph.create(prim::Loop, {emitter.call("aten::len", weights),
                                emitter.constant(true), found}));
  loop->output()->setType(c10::StringType::get());
  tj::Block *body = loop->addBlock();
  TorchValue *index = body->addInput()->setType(c10::IntType::get());
  TorchValue *before = body->addInput()->setType(c10::StringType::get());
  tj::WithInsertPoint guard(body);
  auto getAt = [&](TorchValue *list) {
    return emitter.call("aten::__getitem__", {list, index});
  };
  TorchValue *after = compare(getAt(weights), getAt(nameList), before);
  body->registerOutput(emitter.constant(true));
  body->registerOutput(after);
  return loop->output();
}

tj::Value *koila::torchscript::emitDrawsOn(GraphEmitter &emitter,
                                           llvm::StringRef drawsOn,
                                           tj::Value *device,
                                           const std::string &suffix) {
  bool isOfCpu = drawsOn == "cpu";
  auto text = [&](const std::string &words) { return emitter.constant(words); };
  return emitter.branch(
      emitter.call(isOfCpu ? "aten::eq" : "aten::ne",
                   {emitter.call("prim::type", device), text("cpu")}),
      c10::StringType::get(), [&] { return text(""); },
      [&] {
        return text(std::string("koila: random numbers for the whole batch are "
                                "those of ") +
                    (isOfCpu ? "the CPU, and the program runs on another device"
                             : "a GPU, and the program runs on the CPU") +
                    suffix);
      });
}
