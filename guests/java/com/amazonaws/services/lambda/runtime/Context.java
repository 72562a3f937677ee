// SPDX-License-Identifier: Apache-2.0
package com.amazonaws.services.lambda.runtime;

/** What a handler may know about its call. */
public interface Context {
    String getAwsRequestId();

    String getLogGroupName();

    String getLogStreamName();

    String getFunctionName();

    String getFunctionVersion();

    String getInvokedFunctionArn();

    /** None here. */
    CognitoIdentity getIdentity();

    /** None here. */
    ClientContext getClientContext();

    int getRemainingTimeInMillis();

    int getMemoryLimitInMB();

    LambdaLogger getLogger();
}
