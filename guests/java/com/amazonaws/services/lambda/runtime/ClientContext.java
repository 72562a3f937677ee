// SPDX-License-Identifier: Apache-2.0
package com.amazonaws.services.lambda.runtime;

import java.util.Map;

/** Handlers are compiled against it; nobody has one here. */
public interface ClientContext {
    Client getClient();

    Map<String, String> getCustom();

    Map<String, String> getEnvironment();
}
