"""Scripted programs that are not whole, and why. All are read, and written back
as they were, or refused with a sentence; what is missing are shapes."""

LIST = "what comes out of a list that grows in a loop, or that changes"
ELEMENT = "elements of containers that a loop carries or a branch merges"
WRITTEN = "what is read from attributes that the program writes"
OBJECT = "fields of objects of a class"
COUNTER = "an extent made of a loop counter"
UNION = "a --input of type Union"

SCRIPTED_GAPS = {
    "script_list_stack": COUNTER,
    "script_list_of_batch": COUNTER,
    "script_list_slices": LIST,
    "script_list_of_lists": LIST,
    "script_list_shared": LIST,
    "script_list_input": LIST,
    "script_tolist": "data decide how many numbers a list has",
    "script_named_tuple": ELEMENT,
    "script_dict_input": "the dict of arguments is unpacked by a call",
    "script_dict_of_lists": LIST,
    "script_any": "a value of any type",
    "script_complex_numbers": "complex numbers as constants",
    "script_scalar_types": UNION,
    "script_if_type": UNION,
    "script_for_steps": COUNTER,
    "script_for_tensor": LIST,
    "script_for_zip_enumerate": LIST,
    "script_beam_search": LIST,
    "script_extent_arithmetic": LIST,
    "script_class": OBJECT,
    "script_class_in_loop": OBJECT,
    "script_class_operators": OBJECT,
    "script_class_list": OBJECT,
    "script_attributes": "an attribute that is a complex number",
    "script_attribute_tensors": "a list of tensors as an attribute",
    "script_constants": "a tuple constant that a loop walks through",
    "script_module_dict": "a dict that a loop fills",
    "script_interface_index": "which module an interface is, a number decides",
    "script_interface_attribute": "a call through an interface",
    "script_export_state": WRITTEN,
    "script_fork": "torch.jit.fork",
    "script_lstm_cells": ELEMENT,
    "script_lstm": ELEMENT,
    "script_shape_in_place": "an argument loses a dim in place, also for the caller",
    "script_out": "out= gives tensors new extents",
    "script_write_list_element": LIST,
    "script_write_buffer": WRITTEN,
    "script_set_tensor": WRITTEN,
    "script_state_containers": WRITTEN,
    "script_state_in_branch": WRITTEN,
    # Of the long run.
    "script_seq2seq": "an extent out of a list of sizes whose length is read, too",
    "script_tv_swin": LIST,
    "script_tv_swin_v2": LIST,
    "script_timm_levit": LIST,
}
