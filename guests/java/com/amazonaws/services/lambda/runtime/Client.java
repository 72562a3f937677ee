// SPDX-License-Identifier: Apache-2.0
package com.amazonaws.services.lambda.runtime;

/** Handlers are compiled against it; nobody has one here. */
public interface Client {
    String getInstallationId();

    String getAppTitle();

    String getAppVersionName();

    String getAppVersionCode();

    String getAppPackageName();
}
