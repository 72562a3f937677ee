# SPDX-License-Identifier: Apache-2.0
# Lets debuggers in (`sinew dev --debug`): they find this instance at a port of
# its own loopback, which the node leads to. It runs before the function is
# loaded, between its settings and `function.py`.
def let_debuggers_in(settings):
    import os
    import sys

    # What Python brings with it is not what is debugged.
    os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
    layers = [os.path.join("/layers", str(at)) for at in range(int(settings.get("layers", "0")))]
    sys.path += layers
    try:
        import debugpy
    except ModuleNotFoundError as error:
        if error.name != "debugpy":
            raise
        pip = "python3 -m pip install debugpy"
        why = f"this Python has no debugger: {pip}, or add debugpy to requirements.txt"
        raise RuntimeError(why) from None
    finally:
        del sys.path[len(sys.path) - len(layers) :]
    # Within this process: one more for each instance would take memory of the function's.
    debugpy.listen(("127.0.0.1", int(settings["debugger"])), in_process_debug_adapter=True)


let_debuggers_in(SETTINGS)  # noqa: F821
